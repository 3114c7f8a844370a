package digest_test

import (
	"crypto/sha256"
	"strconv"
	"testing"

	"example.com/idempotency/internal/digest"
)

// BenchmarkRaw measures against the floor: the SHA-256 of the body alone.
func BenchmarkRaw(b *testing.B) {
	for _, size := range []int{1 << 10, 256 << 10} {
		r := digest.Request{
			Method: "POST", Path: "/v1/charges", Query: "expand=customer",
			ContentType: "application/json; charset=utf-8", Body: make([]byte, size),
		}
		b.Run("fingerprint/"+strconv.Itoa(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				digest.Raw(&r)
			}
		})
		b.Run("floor/"+strconv.Itoa(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				sha256.Sum256(r.Body)
			}
		})
	}
}

// BenchmarkChecksum shows what the checksums cost beside the fingerprint.
func BenchmarkChecksum(b *testing.B) {
	for _, size := range []int{1 << 10, 256 << 10} {
		r := digest.Request{
			Method: "POST", Path: "/v1/charges", Query: "expand=customer",
			ContentType: "application/json; charset=utf-8", Body: make([]byte, size),
		}
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				digest.Checksum(&r)
			}
		})
	}
}
