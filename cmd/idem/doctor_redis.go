package main

import (
	"cmp"
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
	d.prefixes(names)
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
	used, most := said.number("used_memory"), said.number("maxmemory")
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

// rights are what the service sends, with record and channel for %s and %c, and what fails without: see the permissions
// of RedisStore.
var rights = []struct{ without, result, commands string }{
	{"requests with a key get 503", fail, `PING|EVAL x 1 %s|EVALSHA x 1 %s|PTTL %s|PEXPIRE %s 1|HGET %s f|HMGET %s f|HKEYS %s|HGETALL %s|HSET %s f v|HSETNX %s f v|` +
		`HDEL %s f|DEL %s|ZADD %s 1 m|ZREM %s m|ZRANGE %s 0 0|TIME|INFO|PUBLISH %c m|SUBSCRIBE %c|UNSUBSCRIBE %c|MULTI|EXEC`},
	{"requests get 503 on routes with WithReference or WithFindableScope, and lists fail", fail, `ZSCORE %s m|ZSCAN %s 0`},
	{"Guard.Reconcile, idem stats and idem watch see no record outside of the index", warn, `SCAN 0`},
	{"WithReplicas refuses every new key", fail, `WAIT 1 1`},
}

// rights asks the server which commands it would refuse to an account.
func (d *doctor) rights(ctx context.Context) error {
	account := d.account
	if account == "" {
		who, err := d.source.redis.Do(ctx, "ACL", "WHOAMI").Text()
		if err != nil && isAway(err) {
			return err
		}
		account = cmp.Or(who, "default")
	}
	well := true
	for _, r := range rights {
		if r.commands == "WAIT 1 1" && d.replicas == 0 {
			continue
		}
		refused, err := d.refused(ctx, account, r.commands)
		switch {
		case err != nil && isAway(err):
			return err
		case err != nil:
			d.say("rights", warn, "the server does not tell: "+err.Error(), "call the doctor as an administrator of Redis 7 or later, with --account")
			return nil
		case refused != nil:
			well = false
			d.say("rights", r.result, account+" may not "+strings.Join(refused, ", ")+": "+r.without, "ACL SETUSER "+account+" as docs/how-to/redis.md has it")
		}
	}
	if well {
		d.say("rights", ok, account+" may do all that the service does", "")
	}
	return nil
}

// refused returns the names of those commands that the server would refuse to an account.
func (d *doctor) refused(ctx context.Context, account, commands string) (names []string, err error) {
	prefix := d.source.target.prefix
	for command := range strings.SplitSeq(strings.NewReplacer("%s", prefix+"x", "%c", prefix+"settled").Replace(commands), "|") {
		args := []any{"ACL", "DRYRUN", account}
		for word := range strings.FieldsSeq(command) {
			args = append(args, word)
		}
		said, err := d.source.redis.Do(ctx, args...).Text()
		if err != nil {
			return nil, err
		}
		if said != "OK" {
			names = append(names, args[3].(string))
		}
	}
	return names, nil
}
