/*
 * What the threads of hearthd share: const configuration, the mailboxes, the model once it is
 * loaded, counters. No locks: what changes is atomic.
 *
 *      loop (main thread) ──request──► history ──turn──► worker ──turn──► history ──reply──► loop
 *                                                          └────────reply (stream)──────────► loop
 */
#ifndef HEARTH_DAEMON_DAEMON_H
#define HEARTH_DAEMON_DAEMON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/thread.h"
#include "daemon/limits.h"
#include "daemon/miss.h"
#include "engine/engine.h"

/* What replaces a model's own chat template. */
struct config_template {
    char *model; /* its file's name without ".gguf"; "": --model's */
    char *value; /* a file, or a format's name */
    bool is_flag;
};

/* Filled by daemon/config.c from defaults, file, flags; const after. Strings are owned by it. */
struct config {
    char *config_path;
    char *model, *isa;
    struct config_template *templates; /* [n_templates] */
    size_t n_templates;
    char *socket_path, *state_dir, *cache_dir;
    char *listen;        /* "127.0.0.1:8080" or NULL */
    char *api_key_file;
    char *cors_origin;   /* NULL: requests with an Origin are refused on TCP */
    int socket_mode;     /* 0600 (user) or 0660 (system) */
    int ctx;             /* 0: default */
    int parallel, queue, threads;
    uint64_t memory_bytes;
    uint64_t disk_bytes; /* 0: no disk cache; CONFIG_DISK_AUTO */
    uint64_t disk_reserve_bytes;
    int verify_every;    /* of so many restored blocks one is verified; 0: none */
    enum kv_type kv_type;
    bool skip_nfc;       /* --tokenizer-nfc off */
    char *context;       /* strategy of conversations that have none of their own */
    char *embedding_model; /* file; NULL: none */
    int answer_reserve;  /* percent of the window that is kept free for an answer */
    char *summary;       /* who sums up: "model", "extract", "auto"; NULL: auto */
    int use_cache;       /* 0 with --no-cache */
    int speculation;     /* answers are drafted by look-up (daemon/lookup.h) */
    int log_level;
    int serves_all;      /* the other models of the directories, too, on demand */
    int resident;        /* models in memory at once */
    int idle_unload_s;   /* 0: never */
    int load_wait_s;     /* who waits for a model, without a stream, waits so long */
    int unknown_is_default; /* a name that no model has is --model's, also beside others */
};

enum daemon_state { DAEMON_LOADING, DAEMON_READY, DAEMON_STOPPING, DAEMON_FAILED };

/* Counters for /metrics and status; each is written by one thread, read by any. */
struct counters {
    _Atomic uint64_t requests, errors_4xx, errors_5xx, refused_503, canceled;
    _Atomic uint64_t turns_started, turns_done;
    _Atomic uint64_t prompt_tokens, cached_tokens, cached_ram, cached_disk, cached_shared,
        computed_tokens, generated_tokens;
    _Atomic uint64_t drafted_tokens, accepted_tokens; /* daemon/lookup.h */
    _Atomic uint64_t background_tokens; /* computed ahead of turns; not in the sums above */
    _Atomic int is_background;          /* whether a turn of the daemon's own runs now */
    _Atomic uint64_t cache_hits;             /* turns with any cached token */
    _Atomic uint64_t cache_misses[MISS_N];   /* turns with a miss, by enum miss */
    _Atomic uint64_t prefill_us, decode_us, saved_us;
    _Atomic uint64_t kv_blocks, kv_bytes, kv_bytes_max, kv_evicted;
    /* Of kv_bytes: nobody's lease; of kv_bytes_max: what the cache may grow to under pressure; what
     * the system holds for the pool. */
    _Atomic uint64_t kv_cached_bytes, kv_allowed_bytes, kv_resident_bytes;
    /* The account of memory (daemon/budget.h): what is in force, 0 until loading begins. */
    _Atomic uint64_t memory_bytes_max, weights_bytes, buffers_bytes, vectors_bytes;
    /* Memory pressure (daemon/pressure.h): hundredths of a percent when last read; how often the
     * cache has given, blocks, and bytes that went back to the system. */
    _Atomic uint64_t pressure_percent_100, pressure_given, pressure_blocks, pressure_bytes;
    /* Files given to the history (daemon/room.h): how often, and bytes. */
    _Atomic uint64_t room_asked, room_bytes;
    _Atomic uint64_t disk_blocks, disk_bytes, disk_bytes_max; /* gauges; max 0: no disk cache */
    _Atomic uint64_t disk_waiting; /* blocks on their way there */
    _Atomic uint64_t disk_read, disk_written, disk_bytes_written, disk_removed, disk_bad,
        disk_failed;
    _Atomic int disk_paused;
    _Atomic uint64_t verify_blocks, verify_failed; /* checked, and of these different */
    _Atomic uint64_t verify_idle_blocks, verify_idle_failed; /* the same, unasked */
    _Atomic uint64_t running, queued;                 /* gauges */
    _Atomic uint64_t worker_ticks, history_ticks;     /* progress, for the watchdog */
    _Atomic uint64_t layers;                          /* passed by any model: the same */
    _Atomic int worker_parked, history_parked;        /* waiting for mail */
};

struct served;

struct daemon {
    const struct config *config;
    _Atomic int state;              /* enum daemon_state */
    _Atomic int load_permille;      /* 0 … 1000 */
    _Atomic(struct engine *) engine; /* --model's, NULL until it was loaded. It may have left since:
                                     * that it is set is all that this says */
    int ctx;                        /* positions a turn of it may have; set before `engine` */
    char model_id[256];             /* its name; set before `engine` */
    /* The models that were asked for so far, the default first (daemon/served.h). */
    struct served *served[LIMIT_SERVED];
    _Atomic int n_served;           /* set behind the entry */
    struct mailbox loop, history, worker;
    /* Blocks that conversations pin, by any model: read by the history thread before
     * history_opened() returns; then the worker takes them. */
    struct memory_block_pinned *pins; /* [n_pins] */
    size_t n_pins;
    atomic_int pass_abort;          /* interrupts the running pass: see worker.h */
    atomic_int is_proving;          /* no turn runs, blocks are verified: a turn that comes
                                     * interrupts that */
    atomic_int load_abort;
    struct counters n;
    int64_t t_started_us;
    char load_error[512];           /* set before state = DAEMON_FAILED */
};

#endif
