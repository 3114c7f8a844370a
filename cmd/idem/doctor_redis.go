package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
)

// info is what a server says about itself.
type info map[string]string

func (i info) number(name string) int64 {
	n, _ := strconv.ParseInt(i[name], 10, 64)
	return n
}

// infoOf asks a server for sections, one by one: servers before 7.0 take one.
func infoOf(ctx context.Context, server *redis.Client) (info, error) {
	found := info{}
	for _, section := range []string{"server", "memory", "persistence", "stats", "replication"} {
		text, err := server.Info(ctx, section).Result()
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			if name, value, isField := strings.Cut(strings.TrimSpace(line), ":"); isField {
				found[name] = value
			}
		}
	}
	return found, nil
}

func (d *doctor) examineRedis(ctx context.Context) error {
	if err := d.source.open(ctx); err != nil {
		return err
	}
	st, _ := d.source.records.(*idempotency.RedisStore)
	faults := st.Check(ctx)
	if faults != nil && isAway(faults) {
		return faults
	}
	if faults == nil {
		d.say("server", ok, "a master, recent enough, and never evicts", "")
	} else {
		for fault := range strings.Lines(faults.Error()) {
			d.say("server", fail, strings.TrimPrefix(strings.TrimSpace(fault), "idempotency: redis: "), "docs/how-to/redis.md, The server")
		}
	}
	if err := d.eachServer(ctx); err != nil {
		return err
	}
	before := d.app.now()
	server, err := d.source.redis.Time(ctx).Result()
	if err != nil {
		return err
	}
	d.clock(server, before, d.app.now())
	if err := d.rights(ctx); err != nil {
		return err
	}
	names, err := d.source.namesInRedis(ctx, d.source.target.prefix)
	switch {
	case err != nil && isAway(err):
		return err
	case err != nil:
		d.say("prefix", warn, "the server does not let this command look: "+err.Error(), "call the doctor as an account that may SCAN")
		return nil
	}
	if err := d.prefixes(ctx, names); err != nil {
		return err
	}
	return d.readable(ctx, names)
}

// eachServer examines the server, or each master of a Cluster.
func (d *doctor) eachServer(ctx context.Context) error {
	var mu sync.Mutex
	one := func(ctx context.Context, c *redis.Client) error {
		said, err := infoOf(ctx, c)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		d.memory(said)
		d.persistence(said)
		d.followers(said)
		return nil
	}
	if cluster, isCluster := d.source.redis.(*redis.ClusterClient); isCluster {
		return cluster.ForEachMaster(ctx, one)
	}
	client, _ := d.source.redis.(*redis.Client)
	return one(ctx, client)
}

func (d *doctor) memory(said info) {
	// What it keeps for its replicas and its file does not count (section "memory" of INFO).
	used, most := said.number("used_memory")-said.number("mem_not_counted_for_evict"), said.number("maxmemory")
	if most == 0 {
		d.say("memory", warn, said["used_memory_human"]+" used, without a limit", "set maxmemory below what the machine has, or the system ends the server")
	} else {
		part := 100 * used / most
		d.say("memory", worse(part, 80, 95), fmt.Sprintf("%d%% of %s used", part, said["maxmemory_human"]), "raise maxmemory: a full server begins no run")
	}
	evicted := said.number("evicted_keys")
	d.say("evicted", worse(evicted, 1, 1), fmt.Sprintf("%d keys since the start", evicted),
		"set maxmemory-policy to noeviction: requests whose record was evicted run again")
}

func (d *doctor) persistence(said info) {
	const remedy = "set appendonly to yes: after a restart, requests whose record is lost run again"
	switch {
	case said["aof_last_write_status"] == "err" || said["rdb_last_bgsave_status"] == "err":
		d.say("persistence", fail, "the last write to the disk has failed", "look at the disk and the log of the server")
	case said["aof_enabled"] != "1":
		d.say("persistence", warn, "no append-only file: a restart goes back to the last snapshot, if there is one", remedy)
	default:
		d.say("persistence", ok, "append-only file", "")
	}
}

// followers looks at the replicas.
func (d *doctor) followers(said info) {
	n, lagging := int(said.number("connected_slaves")), ""
	for i := range n {
		if one := said[fmt.Sprintf("slave%d", i)]; !strings.Contains(one, "state=online") {
			lagging = ", one of them not in step"
		}
	}
	switch found := fmt.Sprintf("%d%s", n, lagging); {
	case n < d.replicas:
		d.say("replicas", fail, fmt.Sprintf("%s, and the service waits for %d", found, d.replicas), "bring replicas back: until then every new key gets 503")
	case lagging != "":
		d.say("replicas", warn, found, "look at master_link_status on the replica")
	default:
		d.say("replicas", ok, found, "")
	}
}
