package redisproto

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRedisCheckReadsInfo(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{
		"6.2.0": true, "6.2.14": true, "7.0.15": true, "8.0.1": true, "10.1.0": true,
		"6.0.16": false, "5.0.7": false, "": false, "unstable": false,
	} {
		err := CheckVersion("# Server\r\nredis_version:" + version + "\r\nredis_mode:standalone\r\n")
		require.Equal(t, ok, err == nil, "%s: %v", version, err)
	}
	require.NoError(t, CheckPolicy("# Memory\r\nmaxmemory_policy:noeviction\r\n"))
	require.Error(t, CheckPolicy("# Memory\r\nmaxmemory_policy:volatile-ttl\r\n"))
	require.Error(t, CheckPolicy("# Memory\r\n"))
	require.Error(t, CheckRole("redis_mode:standalone\r\n", "# Replication\r\nrole:slave\r\nmaster_host:redis.local\r\n"))
	for _, info := range [][2]string{
		{"redis_mode:standalone\r\n", "# Replication\r\nrole:master\r\n"},
		{"redis_mode:cluster\r\n", "# Replication\r\nrole:slave\r\n"},
		{"", ""},
	} {
		require.NoError(t, CheckRole(info[0], info[1]))
	}
}

func TestRedisDialAddr(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"127.0.0.1:6379": "127.0.0.1:6379", "redis.local:6379": "redis.local:6379",
		"::1:6379": "[::1]:6379", "[::1]:6379": "[::1]:6379", "nonsense": "nonsense", "": "",
	} {
		require.Equal(t, want, DialAddr(addr))
	}
}
