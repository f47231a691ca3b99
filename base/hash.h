/* BLAKE2b-256 and random bytes (libsodium), and ids made of them. */
#ifndef HEARTH_BASE_HASH_H
#define HEARTH_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include "base/err.h"

#define HASH_BYTES 32

/* Once, before anything else here; ERR_IO when the system has no randomness. */
int hash_start(struct err *e) MUST_USE;

void hash_of(const void *data, size_t n, uint8_t ret[HASH_BYTES]);

/* Streaming form. The state is libsodium's, kept opaque and aligned. */
struct hash_state {
    _Alignas(64) unsigned char opaque[384];
};
void hash_init(struct hash_state *s);
void hash_add(struct hash_state *s, const void *data, size_t n);
void hash_end(struct hash_state *s, uint8_t ret[HASH_BYTES]);

/* 2 * n lower-case hex digits and a NUL. */
void hex_write(const void *data, size_t n, char *ret);
/* 0 to 15; -1 when it is none. */
int hex_digit(char c);
/* Exactly 2 * n hex digits; false otherwise. */
bool hex_parse(const char *hex, size_t n_digits, void *ret, size_t n);

void random_bytes(void *ret, size_t n);
uint64_t random_u64(void);
/* prefix + 32 hex digits of randomness: "conv_…", "resp_…". ret holds strlen(prefix) + 33 bytes. */
void random_id(const char *prefix, char *ret);
/* Constant-time comparison of n bytes. */
bool bytes_equal(const void *a, const void *b, size_t n);

#endif
