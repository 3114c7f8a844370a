package redisproto

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"example.com/idempotency/store"
)

// Faults reads sections of INFO. It returns what is wrong with the server now: why it is not to be trusted with records,
// that it has evicted some, and that it has no room for new ones.
func Faults(server, memory, stats, replication string) (faults []error) {
	for _, err := range []error{CheckVersion(server), CheckPolicy(memory), checkEvicted(stats), checkRoom(memory), CheckRole(server, replication)} {
		if err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// checkEvicted reads the section "stats" of INFO.
func checkEvicted(info string) error {
	if n := infoNumber(info, "evicted_keys"); n > 0 {
		return fmt.Errorf("keys that the server has evicted: %d; requests whose record was among them run again, and CONFIG RESETSTAT begins to count anew", n)
	}
	return nil
}

// checkRoom reads the section "memory" of INFO. A server that may evict takes what it is given.
func checkRoom(info string) error {
	used, most := roomOf(info)
	if most == 0 || used < most || CheckPolicy(info) != nil {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are used, with a maxmemory of %d, and no run begins; raise maxmemory", store.ErrFull, used, most)
}

// roomOf returns how much memory a server uses, as it compares that with its limit: without the buffers of its replicas and
// its file; and the limit.
func roomOf(info string) (used, most int64) {
	return infoNumber(info, "used_memory") - infoNumber(info, "mem_not_counted_for_evict"), infoNumber(info, "maxmemory")
}

// Usage reads the sections "memory" and "keyspace" of INFO.
func Usage(memory, keyspace string) []store.Figure {
	used, most := roomOf(memory)
	keys := int64(0)
	for line := range strings.Lines(keyspace) {
		if _, db, ok := strings.Cut(line, ":keys="); ok {
			n, _, _ := strings.Cut(db, ",")
			count, _ := strconv.ParseInt(n, 10, 64)
			keys += count
		}
	}
	return []store.Figure{{Name: "memory", Used: used, Limit: most, Bytes: true}, {Name: "keys of any kind", Used: keys}}
}

func infoNumber(info, field string) int64 {
	n, _ := strconv.ParseInt(infoField(info, field), 10, 64)
	return n
}

// CheckVersion reads the section "server" of INFO. It returns an error when the server is
// too old for the scripts.
func CheckVersion(info string) error {
	version := infoField(info, "redis_version")
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("cannot read the server's version %.20q", version)
	}
	if major < 6 || major == 6 && minor < 2 {
		return fmt.Errorf("the server has version %s, but the store needs 6.2 or later", version)
	}
	return nil
}

// CheckPolicy reads the section "memory" of INFO, which an account may ask for even where
// CONFIG is forbidden. It returns an error when the server may evict records.
func CheckPolicy(info string) error {
	policy := infoField(info, "maxmemory_policy")
	if policy != "noeviction" {
		return fmt.Errorf("maxmemory-policy is %q: the server may evict live records, and their requests "+
			"would run again; set it to noeviction", policy)
	}
	return nil
}

// CheckRole reads the section "replication" of INFO. It returns an error when the server is a
// replica: most take no writes, and the others lose them when they copy their master again. A
// server that does not tell its role passes. So does a node of a Cluster, by the section
// "server", because it sends its clients to the master.
func CheckRole(server, replication string) error {
	role := infoField(replication, "role")
	if role != "slave" && role != "replica" || infoField(server, "redis_mode") == "cluster" {
		return nil
	}
	return fmt.Errorf("the server is a replica of %q: the store needs its master", infoField(replication, "master_host"))
}

// infoField returns one field of an INFO reply.
func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// DialAddr returns the address of a redirection (MOVED, ASK) in a form that can be
// dialled: Redis writes IPv6 without brackets.
func DialAddr(addr string) string {
	colon := strings.LastIndexByte(addr, ':')
	if colon < 0 || addr[0] == '[' {
		return addr
	}
	return net.JoinHostPort(addr[:colon], addr[colon+1:])
}
