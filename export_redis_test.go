package idempotency

// RedisScripts are the names that a Redis server knows the scripts by: what a message to
// it contains that executes one.
var RedisScripts = map[string]string{
	"claim":  claimScript.digest,
	"renew":  renewScript.digest,
	"settle": settleScript.digest,
	"step":   stepScript.digest,
}
