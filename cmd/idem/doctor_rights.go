package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// This file asks Redis which commands it would refuse to the account of the service.

// rights are what the service sends, with record and channel for %s and %c, and what fails without: see the permissions
// of RedisStore.
var rights = []struct{ without, result, commands string }{
	{"requests with a key get 503", fail, `EVAL x 1 %s|EVALSHA x 1 %s|PTTL %s|PEXPIRE %s 1|HSET %s f v`},
	{"new requests get 503 on routes with Hold, WithReference or WithFindableScope", fail, `ZADD %s 1 m|TIME`},
	{"new requests get 503 on routes with Hold, WithReference or WithFindableScope, and lists fail", fail, `ZREM %s m|ZRANGE %s 0 0`},
	{"requests get 503 on routes with WithReference or WithFindableScope, and lists fail", fail, `ZSCORE %s m`},
	{"retries get 503, and no answer is recorded", fail, `HMGET %s f`},
	{"later attempts get 503, and nothing can be forgotten", fail, `HGETALL %s`},
	{"steps, decisions and some retries fail", fail, `HDEL %s f`},
	{"retries of large answers get 503, and Guard.Forget and Guard.Erase fail", fail, `HGET %s f|MULTI`},
	{"large answers take longer to record", warn, `HSETNX %s f v`},
	{"a request that waits for the end of a run gets 409", fail, `PUBLISH %c m`},
	{"a request that waits for the end of a run asks at intervals", warn, `SUBSCRIBE %c|UNSUBSCRIBE %c|PING`},
	{"nothing is looked up, and no operator can decide", fail, `HKEYS %s`},
	{"Guard.Find and Guard.Erase fail", fail, `ZSCAN %s 0`},
	{"Guard.Forget and Guard.Erase fail", fail, `DEL %s|EXEC`},
	{"Check and Health fail", fail, `INFO`},
	{"Guard.Reconcile sees no record outside of the index, and idem stats and idem watch fail", warn, `SCAN 0`},
	{waits, fail, `WAIT 1 1`},
	{inCluster, fail, `CLUSTER SLOTS`},
	{inMove, warn, `ASKING`},
}

// What is asked for only where it is used.
const (
	waits     = "WithReplicas refuses every new key"
	inCluster = "the client of a Cluster finds no key"
	inMove    = "keys in a slot that is moving get 503"
)

// rights asks the server, or each node of a Cluster, which commands it would refuse to an account. Nodes do not tell each other
// of accounts.
func (d *doctor) rights(ctx context.Context) error {
	account := d.account
	if account == "" {
		who, err := d.source.redis.Do(ctx, "ACL", "WHOAMI").Text()
		if err != nil && isAway(err) {
			return err
		}
		account = cmp.Or(who, "default")
	}
	nodes, err := d.nodes(ctx)
	if err != nil {
		return err
	}
	well := true
	for _, n := range nodes {
		fine, err := d.rightsOn(ctx, n, account)
		if err != nil && !n.replica {
			return err
		}
		well = well && (fine || err != nil)
	}
	if well {
		d.say("rights", ok, account+" may do all that the service does", "")
	}
	return nil
}

// A node is a server, alone or of a Cluster. Of a replica that is away nothing is told.
type node struct {
	*redis.Client
	at      string // " on 10.0.0.7:6379", of a Cluster
	replica bool
}

// nodes returns the server, or each node of a Cluster: a replica may become the master.
func (d *doctor) nodes(ctx context.Context) (all []node, err error) {
	cluster, isCluster := d.source.redis.(*redis.ClusterClient)
	if !isCluster {
		client, _ := d.source.redis.(*redis.Client)
		return []node{{Client: client}}, nil
	}
	var mu sync.Mutex
	add := func(replica bool) func(context.Context, *redis.Client) error {
		return func(_ context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, node{c, " on " + c.Options().Addr, replica})
			return nil
		}
	}
	err = errors.Join(cluster.ForEachMaster(ctx, add(false)), cluster.ForEachSlave(ctx, add(true)))
	slices.SortFunc(all, func(a, b node) int { return cmp.Compare(a.at, b.at) })
	return all, err
}

// rightsOn asks one server, and reports whether it refuses nothing.
func (d *doctor) rightsOn(ctx context.Context, n node, account string) (well bool, err error) {
	well = true
	users, _ := n.ACLList(ctx).Result() // who may not ask hears so below
	if slices.ContainsFunc(users, func(user string) bool { return strings.HasPrefix(user, "user "+account+" off ") }) {
		d.say("rights", fail, account+n.at+" is off: requests with a key get 503", "ACL SETUSER "+account+" on")
		return false, nil
	}
	for _, r := range rights {
		if r.without == waits && d.replicas == 0 || (r.without == inCluster || r.without == inMove) && n.at == "" {
			continue
		}
		refused, err := refusedBy(ctx, n.Client, d.source.target.prefix, account, r.commands)
		switch {
		case err != nil && isAway(err):
			return false, err
		case err != nil && strings.Contains(err.Error(), "not found"):
			d.say("rights", fail, account+n.at+" is not there: requests with a key get 503", "ACL SETUSER, as docs/how-to/redis.md has it, on each node: they do not tell each other")
			return false, nil
		case err != nil:
			d.say("rights", warn, "the server"+n.at+" does not tell: "+err.Error(), "call the doctor as an administrator of Redis 7 or later, with --account")
			return false, nil
		case refused != nil:
			well = false
			d.say("rights", r.result, account+n.at+" may not "+strings.Join(refused, ", ")+": "+r.without, "ACL SETUSER "+account+" as docs/how-to/redis.md has it")
		}
	}
	return well, nil
}

// refusedBy returns the names of those commands that a server would refuse to an account.
func refusedBy(ctx context.Context, server *redis.Client, prefix, account, commands string) (names []string, err error) {
	for command := range strings.SplitSeq(strings.NewReplacer("%s", prefix+"x", "%c", prefix+"settled").Replace(commands), "|") {
		args := []any{"ACL", "DRYRUN", account}
		for word := range strings.FieldsSeq(command) {
			args = append(args, word)
		}
		said, err := server.Do(ctx, args...).Text()
		if err != nil {
			return nil, err
		}
		if said != "OK" {
			name, _, _ := strings.Cut(command, " ")
			if name == "CLUSTER" {
				name = command
			}
			names = append(names, name)
		}
	}
	return names, nil
}
