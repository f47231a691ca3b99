/* BLAKE2b-256 (RFC 7693, no key) and the system's randomness, by libsodium. */
#include "base/hash.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

static_assert(sizeof(struct hash_state) == sizeof(crypto_generichash_state), "hash state's size");
static_assert(_Alignof(struct hash_state) == 64, "libsodium asks for 64");
static_assert(_Alignof(struct hash_state) >= _Alignof(crypto_generichash_state), "alignment");
static_assert(HASH_BYTES >= crypto_generichash_BYTES_MIN &&
                  HASH_BYTES <= crypto_generichash_BYTES_MAX,
              "hash length");

int hash_start(struct err *e)
{
    if (sodium_init() < 0)
        return err_set(e, ERR_IO, "libsodium can't start: no source of randomness");
    return 0;
}

void hash_of(const void *data, size_t n, uint8_t ret[HASH_BYTES])
{
    crypto_generichash(ret, HASH_BYTES, data, n, NULL, 0);
}

void hash_init(struct hash_state *s)
{
    crypto_generichash_init((crypto_generichash_state *)(void *)s, NULL, 0, HASH_BYTES);
}

void hash_add(struct hash_state *s, const void *data, size_t n)
{
    crypto_generichash_update((crypto_generichash_state *)(void *)s, data, n);
}

void hash_end(struct hash_state *s, uint8_t ret[HASH_BYTES])
{
    crypto_generichash_final((crypto_generichash_state *)(void *)s, ret, HASH_BYTES);
}

void hex_write(const void *data, size_t n, char *ret)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) {
        ret[2 * i] = digits[p[i] >> 4];
        ret[2 * i + 1] = digits[p[i] & 15];
    }
    ret[2 * n] = '\0';
}

int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool hex_parse(const char *hex, size_t n_digits, void *ret, size_t n)
{
    if (n_digits % 2 != 0 || n_digits / 2 != n)
        return false;
    for (size_t i = 0; i < n_digits; i++) /* first look, then write: ret is untouched on failure */
        if (hex_digit(hex[i]) < 0)
            return false;
    unsigned char *p = ret;
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    return true;
}

void random_bytes(void *ret, size_t n)
{
    randombytes_buf(ret, n);
}

uint64_t random_u64(void)
{
    uint64_t x;
    randombytes_buf(&x, sizeof(x));
    return x;
}

void random_id(const char *prefix, char *ret)
{
    uint8_t bytes[16];
    size_t n = strlen(prefix);
    randombytes_buf(bytes, sizeof(bytes));
    memcpy(ret, prefix, n);
    hex_write(bytes, sizeof(bytes), ret + n);
}

bool bytes_equal(const void *a, const void *b, size_t n)
{
    return sodium_memcmp(a, b, n) == 0;
}
