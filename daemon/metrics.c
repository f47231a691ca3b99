/*
 * The counters as text. Names are hearth_*; _total counts up since the start; the rest are gauges.
 * Floats only where seconds are.
 */
#include "daemon/metrics.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "daemon/build_id.h"
#include "daemon/served.h"

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void counter(struct buf *b, const char *name, uint64_t v, const char *help)
{
    head(b, name, "counter", help);
    buf_printf(b, "%s %llu\n", name, (unsigned long long)v);
}

static void gauge(struct buf *b, const char *name, uint64_t v, const char *help)
{
    head(b, name, "gauge", help);
    buf_printf(b, "%s %llu\n", name, (unsigned long long)v);
}

static void seconds(struct buf *b, const char *name, uint64_t us, const char *help)
{
    head(b, name, "counter", help);
    buf_printf(b, "%s %llu.%06llu\n", name, (unsigned long long)(us / 1000000),
               (unsigned long long)(us % 1000000));
}

#define GET(field) atomic_load(&n->field)

static void write_requests(const struct net *net, const struct counters *n, struct buf *b)
{
    counter(b, "hearth_requests_total", GET(requests), "HTTP requests with a complete head.");
    head(b, "hearth_errors_total", "counter", "Error responses by class.");
    buf_printf(b, "hearth_errors_total{class=\"4xx\"} %llu\n", (unsigned long long)GET(errors_4xx));
    buf_printf(b, "hearth_errors_total{class=\"5xx\"} %llu\n", (unsigned long long)GET(errors_5xx));
    counter(b, "hearth_refused_total", GET(refused_503), "Responses with status 503.");
    counter(b, "hearth_canceled_total", GET(canceled), "Turns whose client went away.");
    gauge(b, "hearth_connections", (uint64_t)net->n_conns, "Open connections.");
    counter(b, "hearth_connections_total", net->n_accepted, "Accepted connections.");
    counter(b, "hearth_connections_refused_total", net->n_turned_away,
            "Connections turned away because there were too many.");
    counter(b, "hearth_connections_dropped_total", net->n_dropped,
            "Connections dropped: a reader that stalled, or too much sent ahead.");
    gauge(b, "hearth_places_taken", (uint64_t)net->sched.n_places,
          "Admitted turns: running and waiting.");
    gauge(b, "hearth_places", (uint64_t)(net->sched.parallel + net->sched.queue),
          "Turns that may be admitted at once.");
}

static void write_turns(const struct counters *n, struct buf *b)
{
    counter(b, "hearth_turns_started_total", GET(turns_started),
            "Turns that the worker has begun.");
    counter(b, "hearth_turns_done_total", GET(turns_done),
            "Turns that have ended, however they did.");
    gauge(b, "hearth_turns_running", GET(running), "Turns that are computed now.");
    gauge(b, "hearth_turns_queued", GET(queued), "Turns that wait for the worker.");
    counter(b, "hearth_prompt_tokens_total", GET(prompt_tokens), "Tokens of all prompts.");
    counter(b, "hearth_cached_tokens_total", GET(cached_tokens),
            "Prompt tokens found in the cache.");
    head(b, "hearth_cached_tokens_by_source_total", "counter",
         "Prompt tokens found in the cache, by tier.");
    buf_printf(b, "hearth_cached_tokens_by_source_total{source=\"ram\"} %llu\n",
               (unsigned long long)GET(cached_ram));
    buf_printf(b, "hearth_cached_tokens_by_source_total{source=\"disk\"} %llu\n",
               (unsigned long long)GET(cached_disk));
    counter(b, "hearth_shared_tokens_total", GET(cached_shared),
            "Cached prompt tokens that another conversation computed first.");
    counter(b, "hearth_drafted_tokens_total", GET(drafted_tokens),
            "Tokens of answers drafted by look-up.");
    counter(b, "hearth_accepted_tokens_total", GET(accepted_tokens),
            "Drafted tokens that the sampler drew.");
    counter(b, "hearth_computed_tokens_total", GET(computed_tokens),
            "Prompt tokens that were computed.");
    counter(b, "hearth_background_tokens_total", GET(background_tokens),
            "Prompt tokens computed ahead, while nobody waited.");
    counter(b, "hearth_generated_tokens_total", GET(generated_tokens), "Tokens sampled.");
    seconds(b, "hearth_prefill_seconds_total", GET(prefill_us), "Time spent on prompts.");
    seconds(b, "hearth_decode_seconds_total", GET(decode_us), "Time spent on answers.");
    seconds(b, "hearth_saved_seconds_total", GET(saved_us),
            "Estimated time that reading what was cached would have taken.");
}

static void write_cache(const struct counters *n, struct buf *b)
{
    counter(b, "hearth_cache_hits_total", GET(cache_hits),
            "Turns that found some of their prompt in the cache.");
    head(b, "hearth_cache_misses_total", "counter",
         "Turns that had to read again, or had nothing to find, by reason. Those that found a part "
         "are hits, too.");
    for (int i = MISS_NONE + 1; i < MISS_N; i++)
        buf_printf(b, "hearth_cache_misses_total{reason=\"%s\"} %llu\n", miss_name(i),
                   (unsigned long long)GET(cache_misses[i]));
    counter(b, "hearth_cache_evicted_blocks_total", GET(kv_evicted), "KV blocks evicted.");
    gauge(b, "hearth_kv_blocks", GET(kv_blocks), "KV blocks in use.");
    gauge(b, "hearth_kv_bytes", GET(kv_bytes), "Bytes of KV blocks in use.");
    gauge(b, "hearth_kv_bytes_max", GET(kv_bytes_max), "Budget of KV blocks in bytes.");
}

static void write_memory(const struct counters *n, struct buf *b)
{
    gauge(b, "hearth_memory_bytes_max", GET(memory_bytes_max), "Budget of memory in bytes.");
    gauge(b, "hearth_weights_bytes", GET(weights_bytes), "Of it, the model's weights.");
    gauge(b, "hearth_buffers_bytes", GET(buffers_bytes),
          "Of it, kept for passes, the tokenizer, requests and SQLite.");
    gauge(b, "hearth_vectors_bytes", GET(vectors_bytes), "Of it, vectors for search.");
    gauge(b, "hearth_kv_cached_bytes", GET(kv_cached_bytes),
          "Bytes of KV blocks that no running turn uses.");
    gauge(b, "hearth_kv_allowed_bytes", GET(kv_allowed_bytes),
          "What the KV blocks may grow to now: less while memory is short.");
    gauge(b, "hearth_kv_resident_bytes", GET(kv_resident_bytes),
          "What the system holds for KV blocks, free ones included.");
    counter(b, "hearth_memory_pressure_total", GET(pressure_given),
            "Times that the cache gave memory back because the machine was short of it.");
    counter(b, "hearth_memory_pressure_blocks_total", GET(pressure_blocks),
            "KV blocks evicted for it.");
    counter(b, "hearth_memory_pressure_bytes_total", GET(pressure_bytes),
            "Bytes that went back to the system.");
}

static void write_disk(const struct counters *n, struct buf *b)
{
    gauge(b, "hearth_disk_blocks", GET(disk_blocks), "KV blocks on disk.");
    gauge(b, "hearth_disk_bytes", GET(disk_bytes), "Bytes that they take there.");
    gauge(b, "hearth_disk_bytes_max", GET(disk_bytes_max), "Budget of the disk, 0: none.");
    gauge(b, "hearth_disk_waiting_blocks", GET(disk_waiting), "KV blocks not yet written.");
    gauge(b, "hearth_disk_paused", (uint64_t)GET(disk_paused), "1 while writing rests.");
    counter(b, "hearth_disk_read_blocks_total", GET(disk_read), "KV blocks read from disk.");
    counter(b, "hearth_disk_written_blocks_total", GET(disk_written), "KV blocks written.");
    counter(b, "hearth_disk_written_bytes_total", GET(disk_bytes_written), "Bytes written.");
    counter(b, "hearth_disk_removed_blocks_total", GET(disk_removed), "KV blocks removed.");
    counter(b, "hearth_disk_bad_files_total", GET(disk_bad),
            "Files that were not what they should be.");
    counter(b, "hearth_disk_failed_writes_total", GET(disk_failed), "Writes that failed.");
    counter(b, "hearth_disk_given_total", GET(room_asked),
            "Times that the history found the disk full and asked for room.");
    counter(b, "hearth_disk_given_bytes_total", GET(room_bytes),
            "Bytes of files that were removed for it.");
}

static void write_verify(const struct counters *n, struct buf *b)
{
    counter(b, "hearth_verify_blocks_total", GET(verify_blocks),
            "KV blocks that were computed again and compared.");
    counter(b, "hearth_verify_failed_blocks_total", GET(verify_failed),
            "KV blocks that were not what the model computes.");
    counter(b, "hearth_verify_idle_blocks_total", GET(verify_idle_blocks),
            "KV blocks read from disk that were verified when nothing else ran.");
    counter(b, "hearth_verify_idle_failed_blocks_total", GET(verify_idle_failed),
            "Of these, those that were not what the model computes.");
}

/* A line for each model that was in memory in this run. */
static void write_models(const struct daemon *d, struct buf *b)
{
    static const struct {
        const char *name, *type, *help;
        size_t at;
    } rows[] = {
        {"hearth_model_turns_total", "counter", "Turns that have ended, by model.",
         offsetof(struct served, turns)},
        {"hearth_model_prompt_tokens_total", "counter", "Tokens of prompts, by model.",
         offsetof(struct served, prompt_tokens)},
        {"hearth_model_cached_tokens_total", "counter", "Prompt tokens found in the cache.",
         offsetof(struct served, cached_tokens)},
        {"hearth_model_generated_tokens_total", "counter", "Tokens sampled, by model.",
         offsetof(struct served, generated_tokens)},
        {"hearth_model_loads_total", "counter", "Times that a model came into memory.",
         offsetof(struct served, loads)},
        {"hearth_model_unloads_total", "counter", "Times that a model left memory.",
         offsetof(struct served, unloads)},
        {"hearth_model_weights_bytes", "gauge", "A model's weights in memory, 0: it isn't there.",
         offsetof(struct served, weights_bytes)},
        {"hearth_model_kv_bytes", "gauge", "A model's KV blocks in use.",
         offsetof(struct served, kv_bytes)},
        {"hearth_model_kv_bytes_max", "gauge", "A model's share of the budget for KV blocks.",
         offsetof(struct served, kv_bytes_max)},
    };
    const int n = atomic_load(&d->n_served);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        head(b, rows[i].name, rows[i].type, rows[i].help);
        for (int k = 0; k < n; k++) {
            const char *s = (const char *)d->served[k];
            buf_printf(b, "%s{model=", rows[i].name);
            json_write_str(b, d->served[k]->id, strlen(d->served[k]->id));
            buf_printf(b, "} %llu\n",
                       (unsigned long long)atomic_load(
                           (const _Atomic uint64_t *)(const void *)(s + rows[i].at)));
        }
    }
}

void metrics_write(const struct net *net, struct buf *b)
{
    const struct daemon *d = net->d;
    head(b, "hearth_build_info", "gauge", "The running program.");
    buf_printf(b, "hearth_build_info{version=\"%s\",build=\"%s\"} 1\n", HEARTH_VERSION, build_id());
    gauge(b, "hearth_ready", atomic_load(&d->state) == DAEMON_READY, "1 when the model is loaded.");
    gauge(b, "hearth_uptime_seconds", (uint64_t)(clock_us() - d->t_started_us) / 1000000,
          "Seconds since the start.");
    write_requests(net, &d->n, b);
    write_turns(&d->n, b);
    write_cache(&d->n, b);
    write_memory(&d->n, b);
    write_disk(&d->n, b);
    write_verify(&d->n, b);
    write_models(d, b);
}

int health_write(const struct daemon *d, struct buf *b)
{
    static const char *const names[] = {
        [DAEMON_LOADING] = "loading",
        [DAEMON_READY] = "ok",
        [DAEMON_STOPPING] = "stopping",
        [DAEMON_FAILED] = "failed",
    };
    int state = atomic_load(&d->state);
    buf_printf(b, "{\"status\":\"%s\"", names[state]);
    if (state == DAEMON_LOADING) {
        int permille = atomic_load(&d->load_permille);
        buf_printf(b, ",\"progress\":%d.%03d", permille / 1000, permille % 1000);
    }
    if (state == DAEMON_FAILED) {
        buf_str(b, ",\"error\":");
        json_write_str(b, d->load_error, strlen(d->load_error));
    }
    buf_printf(b, ",\"version\":\"%s\",\"build\":\"%s\",\"pid\":%ld,\"uptime_s\":%lld}",
               HEARTH_VERSION, build_id(), (long)getpid(),
               (long long)((clock_us() - d->t_started_us) / 1000000));
    return state == DAEMON_READY ? 200 : 503;
}
