package redisproto

import (
	"fmt"
	"net"
	"strings"
)

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
		return fmt.Errorf("maxmemory-policy is %q: the server may drop live records, and their requests "+
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
