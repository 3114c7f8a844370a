package redisproto

import (
	"crypto/sha1" //nolint:gosec // names a script to the server, protects nothing
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
)

// Every call is one script on one key, and the source that a server is given when it does
// not know the digest is the source of that digest.
func TestRedisCalls(t *testing.T) {
	owner, answer := [16]byte{1}, Answer{201, []byte("answer"), time.Minute}
	claim, err := NewClaim(store.Claim{Owner: owner, Lease: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	for script, calls := range map[string][]Call{
		"claim": {
			claim.Claim("name", false, nil, "", nil, nil), claim.Claim("name", true, []byte("note"), "label", []byte("sealed"), []store.Tag{{1}}),
			claim.Claim("name", false, make([]byte, 40), "POST /organizations/{id}/charges", nil, nil),
		},
		"renew": {Renew("name", owner)},
		"step":  {SaveStep("name", owner, "step", []byte("value"))},
		"settle": {
			Hold("name", owner, "channel", []byte("note")), Release("name", owner, "channel"),
			ReleaseUndone("name", owner, "channel", time.Minute, false, true), ReleaseUndone("name", owner, "channel", 0, true, false),
			Complete("name", owner, "channel", answer), CompleteDetached("name", owner, "channel", answer),
		},
		"resolve": {ResolveReleased("name", owner, 1, "channel", nil, nil), ResolveReleased("name", owner, 1, "channel", []byte("note"), map[string][]byte{"step": nil}), ResolveCompleted("name", owner, 1, "channel", nil, answer)},
		"get":     {Get("name")},
		"enter":   {Enter("name", NewMember(owner, "key"), true, nil), Enter("name", NewMember(owner, "key"), false, []Member{NewMember(owner, "settled")})},
		"drop":    {Drop("name", []Place{{NewMember(owner, "key"), 1}}), DropTagged("name", []Tagged{{"key", 1}})},
		"oldest":  {Oldest("name", 1, 2)},
		"survey":  {Survey("name"), ReadTags("name")},
		"whole":   {Whole("name")},
		"tag":     {EnterTag("name", "key", time.Minute, false), EnterTag("name", "key", time.Minute, true)},
		"scan":    {ScanTag("name", 1, 2)},
		"forget":  {Forget("name", owner, 1, store.Held), ForgetUnread("name", "header")},
	} {
		for _, call := range calls {
			require.Equal(t, "name", call.Name())
			byDigest := append([]any(nil), call.ByDigest()...)
			require.Equal(t, []any{"evalsha", Digests()[script], "1", "name"}, byDigest[:4])
			bySource := call.BySource()
			source, ok := bySource[1].(string)
			require.True(t, ok)
			sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
			require.Equal(t, byDigest[1], hex.EncodeToString(sum[:]))
			require.Equal(t, "eval", bySource[0])
			require.Equal(t, byDigest[2:], bySource[2:])
		}
	}
}

func TestRedisCheckReadsInfo(t *testing.T) {
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
	for memory, faults := range map[string]int{
		"noeviction\r\nused_memory:8\r\nmaxmemory:8": 1, "noeviction\r\nused_memory:8\r\nmaxmemory:0": 0, "allkeys-lru\r\nused_memory:8\r\nmaxmemory:8": 1,
		"noeviction\r\nused_memory:8\r\nmaxmemory:8\r\nmem_not_counted_for_evict:1": 0,
	} {
		require.Len(t, Faults("redis_version:7.0.0", "maxmemory_policy:"+memory, "evicted_keys:0", ""), faults, memory)
	}
	require.Equal(t, []store.Figure{{Name: "memory", Used: 7, Limit: 9, Bytes: true}, {Name: "keys of any kind", Used: 15}},
		Usage("used_memory:8\r\nmaxmemory:9\r\nmem_not_counted_for_evict:1\r\n", "# Keyspace\r\ndb0:keys=12,expires=12\r\ndb3:keys=3,expires=0\r\n"))
}

func TestRedisDialAddr(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:6379": "127.0.0.1:6379", "redis.local:6379": "redis.local:6379",
		"::1:6379": "[::1]:6379", "[::1]:6379": "[::1]:6379", "nonsense": "nonsense", "": "",
	} {
		require.Equal(t, want, DialAddr(addr))
	}
}
