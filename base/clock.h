/* Clocks. Durations come from the monotonic one only; wall time is for what people read. */
#ifndef HEARTH_BASE_CLOCK_H
#define HEARTH_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_us(void);     /* CLOCK_MONOTONIC, microseconds */
int64_t clock_ms(void);     /* the same in milliseconds */
int64_t clock_wall_s(void); /* CLOCK_REALTIME, seconds since 1970 */
int64_t clock_cpu_us(void); /* processor time of all our threads */

#endif
