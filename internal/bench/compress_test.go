package bench_test

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// charges returns a list in JSON of about size bytes, with as much in it that repeats and
// that does not as the answers of APIs have.
func charges(size int) []byte {
	type charge struct {
		ID       string `json:"id"`
		Customer string `json:"customer"`
		Amount   int    `json:"amount"`
		Currency string `json:"currency"`
		Status   string `json:"status"`
		Created  int64  `json:"created"`
	}
	random := rand.New(rand.NewPCG(1, 2))
	var list []charge
	for n := 0; n < size; n += 170 {
		list = append(list, charge{
			ID:       fmt.Sprintf("ch_%016x%08x", random.Uint64(), random.Uint32()),
			Customer: fmt.Sprintf("cus_%014x", random.Uint64()>>8),
			Amount:   random.IntN(100_000), Currency: "EUR", Status: "succeeded",
			Created: 1_700_000_000 + random.Int64N(100_000_000),
		})
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return b
}

// BenchmarkCompression is why stored answers are not compressed: what it takes, against
// what it saves. Compare its times with those of the Redis tables.
func BenchmarkCompression(b *testing.B) {
	for _, size := range []int{1 << 10, 8 << 10, 64 << 10, 256 << 10} {
		answer := charges(size)
		var packed bytes.Buffer
		w, err := flate.NewWriter(&packed, flate.BestSpeed)
		require.NoError(b, err)
		pack := func() {
			packed.Reset()
			w.Reset(&packed)
			_, _ = w.Write(answer)
			_ = w.Close()
		}
		b.Run(fmt.Sprintf("%dKiB/pack", size>>10), func(b *testing.B) {
			for b.Loop() {
				pack()
			}
			b.ReportMetric(float64(packed.Len())/float64(len(answer)), "packed/plain")
		})
		pack()
		r := flate.NewReader(nil)
		b.Run(fmt.Sprintf("%dKiB/unpack", size>>10), func(b *testing.B) {
			for b.Loop() {
				_ = r.(flate.Resetter).Reset(bytes.NewReader(packed.Bytes()), nil)
				n, err := io.Copy(io.Discard, r)
				if err != nil || int(n) != len(answer) {
					b.Fatal(n, err)
				}
			}
		})
	}
}
