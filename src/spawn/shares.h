/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processors are shared between owners (API keys), not between boxes: the busy boxes of one
 * owner weigh together as much as those of another, however many they are, and all its idle
 * boxes together a small part of that. A run is busy. A session is busy from any command until
 * a second after one that says that it is idle: so execs that follow each other cost no write,
 * and what the server still asks of the box when an exec has ended is done at full weight.
 *
 * Owners are numbers that the holder of the control socket chose. They are compared with each
 * other and never used as an index. */

#include <stdbool.h>
#include <stdint.h>

enum { SHARES_MAX_OWNERS = 4096 /* one for each box */ };

struct box;
struct spawner;

/* Boxes that one owner has. */
struct share {
    uint32_t owner;
    uint16_t busy;
    uint16_t idle;
};

struct shares {
    struct share items[SHARES_MAX_OWNERS];
    unsigned count;
    unsigned busy_owners;  /* who have busy boxes */
    bool is_contended;     /* there are two of those, or were a moment ago, */
    uint64_t contended_ms; /* until then */
    bool is_stale;         /* weights are to be looked at */
    uint64_t done_ms;      /* when they were the last time */
    uint64_t idle_ms;      /* when the next box will be idle; 0: none will */
};

/* The box is this owner's from now on, and busy. It has no weight before shares_weigh(). */
void shares_enter(struct spawner *s, struct box *box, uint32_t owner);
void shares_set_busy(struct spawner *s, struct box *box);
void shares_set_idle(struct spawner *s, struct box *box);
void shares_leave(struct spawner *s, struct box *box); /* accepts one that has no owner */

/* Gives the box's group its weight now. That of the owner's other boxes follows with
 * shares_tend(): to write all of them with every start would cost more than it is worth. */
void shares_weigh(struct spawner *s, struct box *box);

/* How long the spawner may wait before it calls shares_tend(); -1 for ever. */
int shares_pause_ms(const struct spawner *s);
void shares_tend(struct spawner *s);
