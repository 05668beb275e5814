/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pins of one box: which address was given out for which name. A connection to an address
 * belongs to the names that are pinned to it. A pin lives as long as its TTL, at least
 * PINS_MIN_S, since programs keep addresses longer than they should. At most PINS_MAX exist;
 * the one that was refreshed longest ago goes first.
 *
 * With an upstream proxy that resolves, a name gets a *stand-in address* from 198.18.0.0/15,
 * which is that name's alone. */

#include "base/address.h"
#include "proto/network.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PINS_MAX = 512, PINS_MIN_S = 600, PINS_MAX_S = 86400 };

struct pin; /* see pins.c */
struct pins {
    struct pin *list; /* the one refreshed last is last */
    size_t count;
    uint32_t next_stand_in;
};

/* A zeroed struct has no pins. */
void pins_done(struct pins *p);

/* Pins a name to an address, or refreshes that pin. */
void pins_add(
    struct pins *p, const struct address *a, const char *name, uint32_t ttl_s, uint64_t now_ms);

/* Walks over the names pinned to an address, that of the last look-up first. Set *at to 0
 * before the first call. Returns NULL at the end. The name is borrowed until the next
 * pins_add() or pins_stand_in(). */
const char *pins_next(
    const struct pins *p, const struct address *a, uint64_t now_ms, size_t *at);

/* Returns the stand-in address of a name, and pins or refreshes it. */
struct address pins_stand_in(struct pins *p, const char *name, uint64_t now_ms);
bool pins_is_stand_in(const struct address *a);
