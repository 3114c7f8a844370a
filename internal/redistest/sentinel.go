package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// A Failover is a master with one replica, and three Sentinels that put the replica in
// its place when it dies.
type Failover struct {
	Master, Replica *Server
	Sentinels       []*Server
}

// MasterName is what the Sentinels of [StartFailover] call their master.
const MasterName = "main"

// StartFailover returns when all Sentinels know each other and the replica. Two of them
// must miss the master for half a second before they replace it.
func StartFailover(t testing.TB) *Failover {
	t.Helper()
	f := &Failover{Master: Start(t)}
	f.Replica = StartReplica(t, f.Master)
	for range 3 {
		f.Sentinels = append(f.Sentinels, startSentinel(t, f.Master))
	}
	for _, s := range f.Sentinels {
		if !waitFor(func() bool {
			known := pairs(s.Do(t, "SENTINEL", "MASTER", MasterName))
			return known["flags"] == "master" && known["num-slaves"] == "1" && known["num-other-sentinels"] == "2"
		}) {
			t.Fatal("Sentinels do not find each other")
		}
	}
	return f
}

func startSentinel(t testing.TB, master *Server) *Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr)
	return launch(t, allPorts, func(dir, own string) []string {
		// A Sentinel keeps what it learns in its configuration.
		file := filepath.Join(dir, "sentinel.conf")
		config := fmt.Sprintf("port %[1]s\nbind 127.0.0.1\ndir %[2]q\nlogfile log\n"+
			"sentinel monitor %[3]s %[4]s %[5]s 2\n"+
			"sentinel down-after-milliseconds %[3]s 500\nsentinel failover-timeout %[3]s 1000\n",
			own, dir, MasterName, host, port)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{file, "--sentinel"}
	})
}

// Addrs returns where the Sentinels listen.
func (f *Failover) Addrs() []string {
	var addrs []string
	for _, s := range f.Sentinels {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// pairs reads a reply of names and values in turn.
func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	m := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m
}
