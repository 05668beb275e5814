/* SPDX-License-Identifier: Apache-2.0 */

/* See pins.h. A list in the order of refreshing: it is short, and searched only when a box
 * connects or asks for a name. */

#include "egress/pins.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

struct pin {
    struct address address;
    uint64_t until_ms;
    char *name;
};

/* 198.18.0.0/15; the first address stays unused. */
enum { STAND_INS = 1 << 17 };
static const struct address_range stand_ins = {
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0, 0}}, ADDRESS_V4_BITS + 15};

static bool is_same(const struct address *a, const struct address *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

void pins_done(struct pins *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->list[i].name);
    free(p->list);
    *p = (struct pins){.list = NULL};
}

static void remove_at(struct pins *p, size_t i)
{
    memmove(p->list + i, p->list + i + 1, (p->count - i - 1) * sizeof(*p->list));
    p->count--;
}

void pins_add(
    struct pins *p, const struct address *a, const char *name, uint32_t ttl_s, uint64_t now_ms)
{
    struct pin pin = {.address = *a};
    uint64_t seconds = ttl_s < PINS_MIN_S ? PINS_MIN_S : ttl_s;
    seconds = seconds < PINS_MAX_S ? seconds : PINS_MAX_S;
    pin.until_ms = now_ms + seconds * 1000;
    for (size_t i = 0; i < p->count && !pin.name; i++) {
        if (!is_same(&p->list[i].address, a) || strcmp(p->list[i].name, name) != 0)
            continue;
        pin.name = p->list[i].name;
        /* A pin given for long stays for long. */
        if (p->list[i].until_ms > pin.until_ms)
            pin.until_ms = p->list[i].until_ms;
        remove_at(p, i);
    }
    if (p->count == PINS_MAX) {
        free(p->list[0].name);
        remove_at(p, 0);
    }
    if (!pin.name)
        pin.name = xstrdup(name);
    p->list = xgrow(p->list, p->count, sizeof(*p->list));
    p->list[p->count++] = pin;
}

const char *pins_next(
    const struct pins *p, const struct address *a, uint64_t now_ms, size_t *at)
{
    while (*at < p->count) {
        const struct pin *pin = &p->list[p->count - 1 - (*at)++];
        if (is_same(&pin->address, a) && pin->until_ms > now_ms)
            return pin->name;
    }
    return NULL;
}

bool pins_is_stand_in(const struct address *a)
{
    return address_in_range(a, &stand_ins);
}

static bool is_pinned(const struct pins *p, const struct address *a)
{
    for (size_t i = 0; i < p->count; i++)
        if (is_same(&p->list[i].address, a))
            return true;
    return false;
}

/* There are more addresses than pins: this ends. */
static struct address unused_stand_in(struct pins *p)
{
    struct address a;
    do {
        p->next_stand_in = p->next_stand_in + 1 < STAND_INS ? p->next_stand_in + 1 : 1;
        a = stand_ins.base;
        a.bytes[13] = (uint8_t)(a.bytes[13] + (p->next_stand_in >> 16));
        a.bytes[14] = (uint8_t)(p->next_stand_in >> 8);
        a.bytes[15] = (uint8_t)p->next_stand_in;
    } while (is_pinned(p, &a));
    return a;
}

struct address pins_stand_in(struct pins *p, const char *name, uint64_t now_ms)
{
    struct address a = stand_ins.base;
    bool is_known = false;
    for (size_t i = 0; i < p->count && !is_known; i++) {
        is_known = pins_is_stand_in(&p->list[i].address) && strcmp(p->list[i].name, name) == 0;
        a = p->list[i].address;
    }
    if (!is_known)
        a = unused_stand_in(p);
    pins_add(p, &a, name, PINS_MAX_S, now_ms);
    return a;
}
