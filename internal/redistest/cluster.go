package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// A Cluster is a Redis Cluster of running servers. The slots are spread evenly over
// the masters.
type Cluster struct {
	Masters  []*Server
	Replicas []*Server // Replicas[i] follows Masters[i], if there are any
}

const slots = 16384

// StartCluster starts a cluster of that many masters, with one replica each if
// replicated, and returns when every node agrees that it is up.
func StartCluster(t testing.TB, masters int, replicated bool) *Cluster {
	t.Helper()
	// Where a replica is to take over, it does so soon. Elsewhere the nodes of a busy machine keep their
	// links, with which they would lose messages.
	patience := "30000"
	if replicated {
		patience = "1000"
	}
	node := func() *Server {
		return Start(t, "--cluster-enabled", "yes",
			"--cluster-node-timeout", patience, "--cluster-require-full-coverage", "no")
	}
	c := &Cluster{}
	for i := range masters {
		s := node()
		s.addSlots(t, i*slots/masters, (i+1)*slots/masters)
		s.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		c.Masters = append(c.Masters, s)
		if replicated {
			c.Replicas = append(c.Replicas, node())
		}
	}
	// A node may be up, and know all others, before it knows which slots they serve. Then it
	// redirects a client to nowhere. While it has no link to one of them, that one gets no messages.
	nodes, all := fmt.Sprint(len(c.nodes())), fmt.Sprint(slots)
	c.await(t, "meet", func(s *Server) bool {
		c.introduce(t)
		info := s.info(s.Do(t, "CLUSTER", "INFO"))
		return info["cluster_known_nodes"] == nodes && info["cluster_slots_assigned"] == all && info["cluster_state"] == "ok" &&
			!strings.Contains(s.known(t), " disconnected")
	})
	for i, s := range c.Replicas {
		s.Do(t, "CLUSTER", "REPLICATE", c.Masters[i].Do(t, "CLUSTER", "MYID"))
	}
	if replicated {
		c.await(t, "replicate", func(s *Server) bool {
			info := s.Info(t, "replication")
			return info["connected_slaves"] == "1" || info["master_link_status"] == "up"
		})
	}
	return c
}

// introduce introduces the first node to those of which one does not know the other: not yet, or not any more, because a
// handshake on a busy machine took longer than its timeout. It tells them of each other. Two that know each other and meet
// again drop their link, and lose the messages of that moment.
func (c *Cluster) introduce(t testing.TB) {
	t.Helper()
	first := c.Masters[0]
	host, port, _ := net.SplitHostPort(first.Addr)
	for _, s := range c.nodes()[1:] {
		if !strings.Contains(s.known(t), first.Addr+"@") || !strings.Contains(first.known(t), s.Addr+"@") {
			s.Do(t, "CLUSTER", "MEET", host, port)
		}
	}
}

// known tells of the nodes that a node knows.
func (s *Server) known(t testing.TB) string {
	t.Helper()
	return fmt.Sprint(s.Do(t, "CLUSTER", "NODES"))
}

// addSlots gives the slots from begin to before end to a node, with words that Redis 6.2 knows.
func (s *Server) addSlots(t testing.TB, begin, end int) {
	t.Helper()
	words := []any{"CLUSTER", "ADDSLOTS"}
	for slot := begin; slot < end; slot++ {
		words = append(words, slot)
	}
	s.Do(t, words...)
}

func (c *Cluster) nodes() []*Server {
	return append(append([]*Server{}, c.Masters...), c.Replicas...)
}

func (c *Cluster) await(t testing.TB, what string, yes func(*Server) bool) {
	t.Helper()
	for _, s := range c.nodes() {
		if !waitFor(func() bool { return yes(s) }) {
			t.Fatalf("cluster nodes do not %s", what)
		}
	}
}

// Holder returns the master that a key belongs to, and another one.
func (c *Cluster) Holder(t testing.TB, key string) (holder, other *Server) {
	t.Helper()
	slot := c.Masters[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64)
	n := len(c.Masters)
	for i := range n {
		if slot < int64((i+1)*slots/n) {
			return c.Masters[i], c.Masters[(i+1)%n]
		}
	}
	panic("redistest: no such slot")
}

// A Move is a slot on its way from one master to another.
type Move struct {
	from, to     *Server
	slot         any
	fromID, toID any
}

// Move begins to move the slot of a key: from now on the server that it is moved to is
// asked for those of its keys that are not on the other one.
func (c *Cluster) Move(t testing.TB, key string) *Move {
	t.Helper()
	m := &Move{slot: c.Masters[0].Do(t, "CLUSTER", "KEYSLOT", key)}
	m.from, m.to = c.Holder(t, key)
	m.fromID, m.toID = m.from.Do(t, "CLUSTER", "MYID"), m.to.Do(t, "CLUSTER", "MYID")
	m.to.Do(t, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.fromID)
	m.from.Do(t, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.toID)
	return m
}

// Keys moves the keys that are in the slot now.
func (m *Move) Keys(t testing.TB) {
	t.Helper()
	host, port, _ := net.SplitHostPort(m.to.Addr)
	for {
		keys := m.from.Do(t, "CLUSTER", "GETKEYSINSLOT", m.slot, 100).([]any)
		if len(keys) == 0 {
			return
		}
		for _, key := range keys {
			m.from.Do(t, "MIGRATE", host, port, key, 0, patience.Milliseconds())
		}
	}
}

// End gives the slot to the server that has its keys.
func (m *Move) End(t testing.TB) {
	t.Helper()
	m.to.Do(t, "CLUSTER", "SETSLOT", m.slot, "NODE", m.toID)
	m.from.Do(t, "CLUSTER", "SETSLOT", m.slot, "NODE", m.toID)
}

// Addrs returns where the nodes listen.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.nodes() {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// Calls returns [Server.Calls] of all masters together.
func (c *Cluster) Calls(t testing.TB) map[string]int {
	t.Helper()
	sum := make(map[string]int)
	for _, s := range c.Masters {
		for name, n := range s.Calls(t) {
			sum[name] += n
		}
	}
	return sum
}

// ForgetCalls makes [Cluster.Calls] begin anew.
func (c *Cluster) ForgetCalls(t testing.TB) {
	t.Helper()
	for _, s := range c.Masters {
		s.ForgetCalls(t)
	}
}

// Advance is [Server.Advance] on all masters.
func (c *Cluster) Advance(t testing.TB, prefix string, d time.Duration) {
	t.Helper()
	for _, s := range c.Masters {
		s.Advance(t, prefix, d)
	}
}
