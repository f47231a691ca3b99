/*
 * The worker's counters: sums over the models' caches. See tally.h.
 */
#include "daemon/tally.h"

static void count_memory(struct counters *n, struct host *const *hosts, int n_hosts)
{
    uint64_t weights = 0, fixed = 0;
    for (int i = 0; i < n_hosts; i++) {
        weights += engine_info(hosts[i]->engine)->weights_bytes;
        fixed += hosts[i]->fixed_bytes;
    }
    atomic_store(&n->weights_bytes, weights);
    atomic_store(&n->buffers_bytes, fixed - weights);
}

static void add_stats(struct cache_stats *sum, const struct cache_stats *s)
{
    sum->n_blocks += s->n_blocks;
    sum->n_tails += s->n_tails;
    sum->bytes_used += s->bytes_used;
    sum->bytes_max += s->bytes_max;
    sum->n_evicted_blocks += s->n_evicted_blocks;
    sum->bytes_cached += s->bytes_cached;
    sum->bytes_allowed += s->bytes_allowed;
    sum->bytes_resident += s->bytes_resident;
    sum->n_disk_waiting += s->n_disk_waiting;
}

static void count_disk(struct counters *n, const struct cache_stats *s, size_t n_waiting)
{
    atomic_store(&n->disk_blocks, s->disk_blocks);
    atomic_store(&n->disk_bytes, s->disk_bytes);
    atomic_store(&n->disk_bytes_max, s->disk_bytes_max);
    atomic_store(&n->disk_waiting, n_waiting);
    atomic_store(&n->disk_read, s->n_disk_read);
    atomic_store(&n->disk_written, s->n_disk_written);
    atomic_store(&n->disk_bytes_written, s->disk_bytes_written);
    atomic_store(&n->disk_removed, s->n_disk_removed);
    atomic_store(&n->disk_bad, s->n_disk_bad);
    atomic_store(&n->disk_failed, s->n_disk_failed);
    atomic_store(&n->disk_paused, s->is_disk_paused);
}

void tally(struct daemon *d, struct host *const *hosts, int n_hosts, const struct cache *hub)
{
    struct cache_stats s, sum = {0};
    struct counters *n = &d->n;
    for (int i = 0; i < n_hosts; i++) {
        cache_stats(hosts[i]->cache, &s);
        add_stats(&sum, &s);
        atomic_store(&hosts[i]->served->kv_bytes, s.bytes_used);
        atomic_store(&hosts[i]->served->kv_bytes_max, s.bytes_max);
    }
    count_memory(n, hosts, n_hosts);
    atomic_store(&n->kv_blocks, sum.n_blocks + sum.n_tails);
    atomic_store(&n->kv_bytes, sum.bytes_used);
    atomic_store(&n->kv_bytes_max, sum.bytes_max);
    atomic_store(&n->kv_evicted, sum.n_evicted_blocks);
    atomic_store(&n->kv_cached_bytes, sum.bytes_cached);
    atomic_store(&n->kv_allowed_bytes, sum.bytes_allowed);
    atomic_store(&n->kv_resident_bytes, sum.bytes_resident);
    cache_stats(hub, &s);
    if (s.has_disk)
        count_disk(n, &s, sum.n_disk_waiting);
}
