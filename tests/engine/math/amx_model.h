/*
 * The AMX instructions that engine/vec_amx.h uses, in C, by their definitions in Intel's manual:
 * eight tiles of 16 rows of 64 bytes, what the configuration makes visible of them, and all that
 * the processor would fault at, which here ends the test by its name.
 *
 * What the model can't show: that the compiler emits the instruction (tests/engine/math/spills.py
 * looks), and how fast it is.
 */
#ifndef HEARTH_TESTS_AMX_MODEL_H
#define HEARTH_TESTS_AMX_MODEL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/math/amx_count.h"

/* Palette 1 (cpuid leaf 0x1d). */
enum { AMX_TILES = 8, AMX_MAX_ROWS = 16, AMX_ROW_BYTES = 64 };

struct amx_tile_state {
    int rows, row_bytes;
    unsigned char at[AMX_MAX_ROWS][AMX_ROW_BYTES];
};
/* A thread's, as the registers are. */
static _Thread_local struct {
    int is_configured;
    struct amx_tile_state tile[AMX_TILES];
} amx;

int amx_model_jobs, amx_model_products;

int amx_model_has_tiles(void)
{
    return amx.is_configured;
}

static inline void amx_need(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "AMX would fault: %s\n", what);
        abort();
    }
}

static inline struct amx_tile_state *amx_tile_of(int i)
{
    amx_need(amx.is_configured, "no configuration");
    amx_need(i >= 0 && i < AMX_TILES, "no such tile");
    amx_need(amx.tile[i].rows > 0, "a tile without a shape");
    return &amx.tile[i];
}

/* 64 bytes: palette, start row, 14 reserved, 16 words of bytes a row, 16 bytes of rows. Zeroes all
 * tiles. */
static inline void _tile_loadconfig(const void *config)
{
    unsigned char c[64];
    memcpy(c, config, sizeof c);
    memset(&amx, 0, sizeof amx);
    amx_need(c[0] == 1, "a palette that isn't 1");
    amx_need(c[1] == 0, "a start row");
    for (int i = 2; i < 16; i++)
        amx_need(c[i] == 0, "reserved bytes");
    for (int i = 0; i < 16; i++) {
        const int bytes = c[16 + 2 * i] | c[17 + 2 * i] << 8, rows = c[48 + i];
        amx_need(i < AMX_TILES || (bytes == 0 && rows == 0), "a shape of a tile that isn't there");
        amx_need(bytes <= AMX_ROW_BYTES && rows <= AMX_MAX_ROWS, "a tile too large");
        amx_need((bytes == 0) == (rows == 0), "a shape with one zero");
        if (i < AMX_TILES) {
            amx.tile[i].rows = rows;
            amx.tile[i].row_bytes = bytes;
        }
    }
    amx.is_configured = 1;
    amx_model_jobs++;
}

static inline void _tile_release(void)
{
    memset(&amx, 0, sizeof amx);
}

static inline void _tile_zero(int i)
{
    memset(amx_tile_of(i)->at, 0, sizeof amx.tile[i].at);
}

static inline void _tile_loadd(int i, const void *base, size_t stride)
{
    struct amx_tile_state *t = amx_tile_of(i);
    memset(t->at, 0, sizeof t->at);
    for (int r = 0; r < t->rows; r++)
        memcpy(t->at[r], (const char *)base + (size_t)r * stride, (size_t)t->row_bytes);
}

static inline void _tile_stored(int i, void *base, size_t stride)
{
    const struct amx_tile_state *t = amx_tile_of(i);
    for (int r = 0; r < t->rows; r++)
        memcpy((char *)base + (size_t)r * stride, t->at[r], (size_t)t->row_bytes);
}

/* to[m][n] += Σ over i of signed a[m][k][i] · unsigned b[k][n][i], i = 0 … 3, without
 * saturation. */
static inline void _tile_dpbsud(int to, int a, int b)
{
    struct amx_tile_state *c = amx_tile_of(to), *x = amx_tile_of(a), *w = amx_tile_of(b);
    amx_need(to != a && to != b && a != b, "a tile twice");
    amx_need(c->row_bytes % 4 == 0 && x->row_bytes % 4 == 0 && w->row_bytes % 4 == 0,
             "rows that aren't of fours");
    amx_need(c->rows == x->rows && c->row_bytes == w->row_bytes && x->row_bytes / 4 == w->rows,
             "shapes that don't fit together");
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->row_bytes / 4; n++) {
            uint32_t sum;
            memcpy(&sum, &c->at[m][4 * n], sizeof sum);
            for (int k = 0; k < x->row_bytes; k++)
                sum += (uint32_t)((int32_t)(int8_t)x->at[m][k] * w->at[k / 4][4 * n + k % 4]);
            memcpy(&c->at[m][4 * n], &sum, sizeof sum);
        }
    amx_model_products++;
}

#endif
