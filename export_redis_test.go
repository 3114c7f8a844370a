package idempotency

// RedisScripts are the names that a Redis server knows the scripts by: what a message to
// it contains that executes one.
var RedisScripts = map[string]string{
	"claim":  claimScript.digest.(string),
	"renew":  renewScript.digest.(string),
	"settle": settleScript.digest.(string),
	"step":   stepScript.digest.(string),
}
