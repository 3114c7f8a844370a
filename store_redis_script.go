package idempotency

import (
	"crypto/sha1" //nolint:gosec // names a script to the server, protects nothing
	_ "embed"     // the scripts
	"encoding/hex"
)

// A redisScript is one atomic step of the Redis store. The server knows it by its
// digest from the first time on that it has seen the source.
type redisScript struct {
	source, digest string
	argument       any // digest, as an argument of a command
}

func newRedisScript(source string) redisScript {
	source = recordLua + source
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	digest := hex.EncodeToString(sum[:])
	return redisScript{source, digest, digest}
}

var (
	//go:embed lua/record.lua
	recordLua string
	//go:embed lua/claim.lua
	claimLua string
	//go:embed lua/settle.lua
	settleLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/step.lua
	stepLua string
	//go:embed lua/resolve.lua
	resolveLua string
	//go:embed lua/forget.lua
	forgetLua string

	claimScript   = newRedisScript(claimLua)
	settleScript  = newRedisScript(settleLua)
	renewScript   = newRedisScript(renewLua)
	stepScript    = newRedisScript(stepLua)
	resolveScript = newRedisScript(resolveLua)
	forgetScript  = newRedisScript(forgetLua)
)

// What the scripts that return a number return.
const (
	redisDone    = 1
	redisRefused = 0
	redisAbsent  = -1
	redisUnknown = -2 // no header, or a damaged one
	redisTooNew  = -3 // the header of a newer version
)
