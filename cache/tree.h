/*
 * The tree's nodes: chained ids, children in order, a table by id, and the order of victims.
 * Private to the cache room.
 *
 *     table[id] ─► node                    whole blocks and tails, one look-up a block
 *     node.children: [ a a b │ a c │ b ]   sorted by ids, so that the longest common prefix with
 * any child is found beside the place where the asked-for ids would stand: O(log children) heap:
 * leaves that no lease holds, the cheapest to lose on top (cache/evict.h)
 *
 * Rules, all checked by tree_check:
 *   1. A node's parent is its root or a full block; a tail (count < 32) is a leaf for ever.
 *   2. No child's ids are a prefix of a sibling's: a tail goes when something longer that starts
 * with it comes, and isn't taken when something longer is there. So at most one sibling can be in
 * the way of a new node, and it is a neighbour.
 *   3. block->n_refs == 1 (the tree) + n_leases + 1 while it is written to disk. A lease holds
 * every node of its path, so an idle node's descendants are idle.
 *   4. The heap holds exactly the nodes without children, leases and pins; its array always has
 * room for all nodes, so becoming a leaf can't fail.
 *   5. A root is there while something hangs from it or a lease is open on it.
 *   6. Of models with windowed layers a block may be thin (engine/kv.h); a tail never is. What is
 * spare has its windowed section.
 *   7. A node is pinned when its id is among the pins. What a pinned node hangs from is held with
 * it: n_held counts the node's own pin and its children that are held.
 */
#ifndef HEARTH_CACHE_TREE_H
#define HEARTH_CACHE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "cache/pins.h"
#include "engine/kv.h"

#define NODE_NOT_IN_HEAP SIZE_MAX

/*
 * Where else a node is, when there is a disk tier (cache/spill.c):
 *
 *     ONLY_RAM ─► RESTING ─► DIRTY ─► WRITING ─► ON_DISK
 *                    │         ▲ failed ─┘
 *                    │         └ whole blocks begin here
 *                    └ tails, until their conversation has rested
 */
enum node_disk { NODE_ONLY_RAM, NODE_RESTING, NODE_DIRTY, NODE_WRITING, NODE_ON_DISK };

/* Nodes in a row, through `before` and `behind`; a node is in one at most. */
struct node_list {
    struct node *first, *last;
    size_t n;
};

struct node {
    uint8_t id[HASH_BYTES];
    struct node *parent; /* NULL: a root */
    struct node *root;   /* itself when it is one */
    struct node *hash_next;
    struct node **children; /* [n_children], sorted */
    int n_children, cap_children;
    int depth; /* blocks before this one; a root: -1 */
    int count; /* 1 … 32; a root: 0 */
    int n_leases;
    int n_held;
    bool is_pinned;
    /* NULL only for a root, so far: with the disk tier a node may hold its positions elsewhere, and
     * this is where it says so. */
    struct kv_block *block;
    int32_t ids[KV_BLOCK];
    uint64_t who; /* who computed it first */
    /* The order of victims (cache/evict.c). */
    double cost_us; /* to compute these positions again */
    double priority;
    uint64_t n_hits, used_at;
    size_t heap_at; /* NODE_NOT_IN_HEAP */
    enum node_disk disk;
    struct node_list *list; /* that it is in, or NULL */
    struct node *before, *behind;
    int64_t due_us; /* RESTING: when it becomes dirty */
    /* Its windowed section could go for room (cache/window.c): in tree.spare. */
    bool is_spare;
    struct node *spare_before, *spare_behind;
    bool is_bad;    /* in quarantine (cache/verify.c): nobody finds it, and it goes when idle */
};

struct tree {
    struct node **buckets; /* [n_buckets], a power of two */
    size_t n_buckets;
    size_t n_nodes;                   /* roots, blocks and tails */
    size_t n_blocks, n_tails, n_idle; /* idle: blocks and tails that could be evicted, now or after
                                       * their children */
    size_t n_leased;                  /* blocks and tails that a lease holds */
    /* Of those, with a windowed section; 0 where blocks have one section. */
    size_t n_windows, n_idle_windows, n_leased_windows;
    struct node_list spare; /* linked by spare_…, those first that were passed longest ago */
    struct pins pins;
    struct node **heap;               /* [n_heap of cap_heap] */
    size_t n_heap, cap_heap;
    double clock;        /* the priority of the last victim */
    uint64_t n_uses;     /* numbers the uses */
    double us_per_token; /* the last measured cost, for nodes whose cost isn't known */
    struct node_list resting, dirty; /* waiting for the disk; both in order of time */
    /* A tail goes because something longer came that starts with it. May be NULL. */
    void (*on_replaced)(void *ctx, const struct node *tail);
    void *ctx;
};

int tree_init(struct tree *t, struct err *e) MUST_USE;
/* Every node must be idle. */
void tree_done(struct tree *t);

/* id = BLAKE2b-256("hearth-kv-1" ‖ parent ‖ count (u8) ‖ ids (u32 little-endian)). count: 1 … 32.
 */
void tree_id(const uint8_t parent[HASH_BYTES], const int32_t *ids, int count,
             uint8_t ret[HASH_BYTES]);

/* The node of an id, or NULL. Borrowed. */
struct node *tree_find(const struct tree *t, const uint8_t id[HASH_BYTES]);
/* The full block under `parent` with these 32 ids, or NULL. Borrowed. */
struct node *tree_find_block(const struct tree *t, const struct node *parent, const int32_t *ids);
/* The child that shares the most first ids with ids[0, n), n <= 32, and how many those are; NULL
 * and 0 when none does. */
struct node *tree_find_prefix(const struct node *parent, const int32_t *ids, int n, int *ret_n);

/* The root of this id, made if it isn't there. Keep it by tree_pin. ERR_NOMEM. */
int tree_root(struct tree *t, const uint8_t id[HASH_BYTES], struct node **ret,
              struct err *e) MUST_USE;
/* Frees a root that nothing hangs from and no lease holds; any other node is left alone. */
void tree_prune_root(struct tree *t, struct node *root);

/* What a new node is made of. */
struct node_new {
    const int32_t *ids;
    int count;
    struct kv_block *block; /* the tree takes a reference of its own */
    uint64_t who;
    int64_t cost_us_per_token; /* 0: unknown */
};
/*
 * Hangs a new node, idle, under a full block or root. A tail that is a prefix of it goes. `*ret` is
 * NULL when a tail was given and a sibling says as much or more already. A full block must not be
 * there yet. ERR_NOMEM: nothing changed.
 */
int tree_add(struct tree *t, struct node *parent, const struct node_new *n, struct node **ret,
             struct err *e) MUST_USE;

/* Takes out an idle leaf (a block or tail) and gives its block's reference back to the pool. Prunes
 * a root that is left empty. */
void tree_remove(struct tree *t, struct node *n);
/* The same, but the tree's reference to the block goes to the caller. */
struct kv_block *tree_take(struct tree *t, struct node *n);

/* A lease holds the node: its block gets one more reference. A pinned node is nobody's victim.
 * Works on roots (no block). */
void tree_pin(struct tree *t, struct node *n);
/* Gives back what tree_pin took. The caller prunes roots. */
void tree_unpin(struct tree *t, struct node *n);

/* The id is pinned from now on; pins_reserve has made room for it. */
void tree_protect(struct tree *t, const uint8_t id[HASH_BYTES]);
/* It isn't any more. */
void tree_expose(struct tree *t, const uint8_t id[HASH_BYTES]);

/* Puts the node at a list's end, out of the one it is in; NULL: in none. */
void tree_list(struct node *n, struct node_list *list);

/* The node's block is thin from now on, and isn't spare. */
void tree_drop_window(struct tree *t, struct node *n);
/* A thin node's block takes over another's windowed section, of the same positions. */
void tree_take_window(struct tree *t, struct node *n, struct kv_block *from);
/* Into the spare ones, as the last; or out of them. */
void tree_set_spare(struct tree *t, struct node *n, bool is_spare);

/* Evicts the cheapest leaf. false when every block is held by a lease or pin. */
bool tree_evict(struct tree *t);
/* Evicts every idle node below `root` (NULL: below all). Returns how many. */
size_t tree_drop(struct tree *t, const struct node *root);

/* Whether n is `top` or hangs from it. */
bool tree_is_below(const struct node *n, const struct node *top);
/* How many nodes are bad, of `top` and what hangs from it. */
size_t tree_count_bad(const struct tree *t, const struct node *top);
/* Removes the bad nodes that no lease holds. */
void tree_drop_bad(struct tree *t);

/* 0, or ERR_CORRUPT with the first rule found broken. Says nothing of leases. */
int tree_check(const struct tree *t, struct err *e) MUST_USE;

#endif
