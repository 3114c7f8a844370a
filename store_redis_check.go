package idempotency

import (
	"fmt"
	"net"
	"strings"
)

// checkRedisVersion reads the section "server" of INFO.
func checkRedisVersion(info string) error {
	version := redisInfo(info, "redis_version")
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("idempotency: redis: cannot read the server's version %.20q", version)
	}
	if major < 6 || major == 6 && minor < 2 {
		return fmt.Errorf("idempotency: redis: the server has version %s, and 6.2 is needed", version)
	}
	return nil
}

// checkRedisPolicy reads the section "memory" of INFO, which an account may ask for
// where CONFIG is forbidden.
func checkRedisPolicy(info string) error {
	policy := redisInfo(info, "maxmemory_policy")
	if policy != "noeviction" {
		return fmt.Errorf("idempotency: redis: maxmemory-policy is %q: the server may drop live records and "+
			"their requests would run again; set it to noeviction", policy)
	}
	return nil
}

// redisInfo returns one field of an INFO reply.
func redisInfo(info, field string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// redisAddr returns an address that a server sends a client to as one that can be
// dialled: Redis writes IPv6 without brackets.
func redisAddr(addr string) string {
	colon := strings.LastIndexByte(addr, ':')
	if colon < 0 || addr[0] == '[' {
		return addr
	}
	return net.JoinHostPort(addr[:colon], addr[colon+1:])
}
