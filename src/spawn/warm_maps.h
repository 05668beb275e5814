/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The memory of a zygote, for what prepares it (warm_gather.c). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WARM_PAGE = 4096, WARM_MAPS_MAX = 256 << 10 };

struct warm_mapping {
    uintptr_t at, end;
    unsigned long inode; /* 0: memory that is no file's */
    bool is_writable, is_code;
};

/* Calls back for every mapping that is private and readable. `text` is room for what the kernel
 * tells of them. Of a machine with other pages than these it tells nothing. */
void warm_each_mapping(char text[WARM_MAPS_MAX],
    void (*found)(void *context, const struct warm_mapping *m), void *context);
