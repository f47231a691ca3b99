/* See hub.h. */
#include "daemon/hub.h"

#include "base/log.h"
#include "daemon/config.h"
#include "daemon/limits.h"
#include "daemon/request.h"
#include "memory/memory.h"

/* The names on the disk are known: a mail, so that the counters are looked at. */
static void on_known(void *ctx, bool is_done)
{
    (void)ctx;
    (void)is_done;
}

/* Without it all else works; why there is none is said once. */
static void open_disk(struct daemon *d, struct cache *hub)
{
    const struct config *c = d->config;
    const bool is_auto = c->disk_bytes == CONFIG_DISK_AUTO;
    struct cache_disk_options o = {
        .dir = c->cache_dir,
        .bytes_max = is_auto ? DEFAULT_DISK_BYTES : c->disk_bytes,
        .percent_max = is_auto ? DEFAULT_DISK_PERCENT : 0,
        .reserve_bytes = c->disk_reserve_bytes,
        .tail_idle_ms = DISK_TAIL_IDLE_MS,
        .reply = &d->worker,
        .reply_kind = MAIL_DISK,
    };
    struct err e;
    if (!c->use_cache || !c->cache_dir || c->disk_bytes == 0)
        return;
    if (cache_disk_open(hub, &o, &e))
        log_warn("no disk cache in this run: %s", e.text);
    else
        (void)!cache_sync(hub, on_known, NULL, &e);
}

/* Before the disk tier learns what it has, and trims it: all models' pins, as most of them aren't
 * loaded. */
static void hold_pins(const struct daemon *d, struct cache *hub)
{
    struct err e;
    for (size_t i = 0; i < d->n_pins; i++) {
        if (cache_hold(hub, d->pins[i].block, 1, &e)) {
            log_warn("some pins of models that aren't loaded have no effect: %s", e.text);
            return;
        }
    }
}

int hub_open(struct daemon *d, struct kv_pool **ret_pool, struct cache **ret, struct err *e)
{
    struct kv_shape shape;
    int rc = kv_shape_init(&shape, KV_F16, 1, 1, 16, e);
    if (rc == 0)
        rc = kv_pool_new(&shape, 1, ret_pool, e);
    if (rc == 0)
        rc = cache_new(*ret_pool, ret, e);
    if (rc)
        return rc;
    hold_pins(d, *ret);
    open_disk(d, *ret);
    return 0;
}
