/*
 * Every limit and default of the daemon, in one table (and in hearthd(8)). Each has its error;
 * base/ holds the limits of its own parsers.
 */
#ifndef HEARTH_DAEMON_LIMITS_H
#define HEARTH_DAEMON_LIMITS_H

/* HTTP */
#define LIMIT_HEADER_BYTES (16 * 1024)       /* 431 */
#define LIMIT_HEADER_MS (10 * 1000)          /* 408: from the first byte to the end of the
                                              * headers */
#define LIMIT_BODY_BYTES (8 * 1024 * 1024)   /* 413 */
#define LIMIT_BODY_MS (60 * 1000)            /* 408: whole body */
#define LIMIT_IDLE_MS (120 * 1000)           /* keep-alive between requests */
#define LIMIT_CONNECTIONS 256                /* 503 and close */
#define LIMIT_OWN_FILES 40                   /* descriptors kept for ourselves; accepting pauses */
#define LIMIT_CONNECTIONS_PEER 64            /* a uid, or a key's name, or a TCP address */
#define LIMIT_DRAIN_BYTES (64 * 1024)        /* of an unread body after an early error; more
                                              * closes */
#define LIMIT_OUTPUT_BYTES (8 * 1024 * 1024) /* waiting for a slow reader; more cancels */
#define LIMIT_BODIES_BYTES (128 * 1024 * 1024) /* bodies on their way in, of all connections;
                                                * more is 503 */
#define LIMIT_INPUT_BYTES (64 * 1024)        /* sent ahead while a request is being answered;
                                              * more closes */
#define LIMIT_LINGER_MS (2 * 1000)           /* a closing connection is read so long, so that its
                                              * last answer arrives */
#define LIMIT_STALL_MS (60 * 1000)           /* a reader that takes no byte for so long is
                                              * dropped */

/* Turns */
#define DEFAULT_CTX 8192                     /* min(model, this, what memory holds) */
#define DEFAULT_PARALLEL 4
#define DEFAULT_QUEUE 32
#define LIMIT_PARALLEL 64
#define LIMIT_QUEUE 4096
#define DEFAULT_MEMORY_BYTES (4ull << 30)    /* min(half of RAM or cgroup, this) */
#define DEFAULT_ANSWER_RESERVE 15            /* percent of the window that cuts keep free, when
                                              * max_tokens doesn't say */
#define LIMIT_ANSWER_RESERVE 50
#define LIMIT_RETRY_AFTER_S 2                /* what a 503 says */
#define LIMIT_MESSAGES 20000                 /* of one request, or one window */
#define LIMIT_STOPS 4                        /* OpenAI's */
#define LIMIT_STOP_BYTES 1024
#define LIMIT_LOGIT_BIAS 1024
#define LIMIT_METADATA_PAIRS 16
#define LIMIT_METADATA_KEY 64
#define LIMIT_METADATA_VALUE 512
#define LIMIT_ITEMS 20                       /* of one POST …/items */
#define TARGET_PREFILL_PASS_MS 150           /* nobody decodes */
#define TARGET_DECODE_PACE 0.8               /* running answers keep this share of their pace */
#define FLUSH_ANSWER_MS 1000                 /* partial answers reach the database this often */
#define DEFAULT_DISK_BYTES (16ull << 30)     /* the disk cache: this … */
#define DEFAULT_DISK_PERCENT 10              /* … or this much of what is free, if less */
#define DEFAULT_DISK_RESERVE (1ull << 30)    /* stays free for history */
#define DISK_TAIL_IDLE_MS 5000               /* a conversation has rested: its last, partial block
                                              * is written */
#define DISK_GIVE_BACK_BYTES (64ull << 20)   /* of files, when the history finds the disk full */
#define PRESSURE_MS 2000                     /* how often memory pressure is read, while there is
                                              * something to give */
#define PRESSURE_SOME_PERCENT 10             /* of the last 10 s: above, the cache gives memory … */
#define PRESSURE_GIVE_DIVISOR 4              /* … one in so many of its blocks each time; below, it
                                              * may grow again, by one … */
#define PRESSURE_GROW_DIVISOR 16             /* … in so many of its budget */
#define DEFAULT_VERIFY_EVERY 64              /* of so many blocks read from disk, one is verified */
#define LIMIT_VERIFY_EVERY (1 << 20)
#define VERIFY_IDLE_MS 500                   /* after the last turn */
#define SLIM_MS 1000                         /* after the last turn, KV memory that nothing is in
                                              * goes back to the system */
#define LIMIT_VERIFY_CONVERSATIONS 100        /* of one verification that names none */
#define LIMIT_VERIFY_QUEUE 8                 /* verifications at the worker; more is 503 */
#define VERIFY_SHARE 0.3                     /* of the time, while turns run */
#define LIMIT_EMBED_INPUTS 2048              /* of one POST /v1/embeddings; OpenAI's */
#define LIMIT_EMBED_TOKENS 300000            /* of all of them; OpenAI's */
#define LIMIT_EMBED_JOBS 16                  /* such requests that wait; more is 503 */
#define VECTORS_DIVISOR 16                   /* vectors for search have one in so many bytes of
                                              * memory … */
#define VECTORS_BYTES_MAX (128ull << 20)     /* … or this, if less: the newest messages' */
#define LIMIT_RESIDENT 16                    /* models in memory */
#define DEFAULT_RESIDENT 4
#define LIMIT_SERVED 256                     /* models that one run may have had in memory */
#define DEFAULT_IDLE_UNLOAD_S (30 * 60)      /* a model that was loaded on demand rests so long */
#define LIMIT_IDLE_UNLOAD_S (7 * 24 * 3600)
#define DEFAULT_LOAD_WAIT_S (5 * 60)         /* an answer that isn't streamed waits for a model */
#define LIMIT_LOAD_WAIT_S (24 * 3600)
#define LOADING_COMMENT_MS 2000              /* how often a stream hears that its model is loaded */
#define LIMIT_DISK_STOP_MS 3000              /* of LIMIT_STOP_MS: then the queue is dropped */
#define LIMIT_STOP_MS 5000                   /* SIGTERM to exit */

#endif
