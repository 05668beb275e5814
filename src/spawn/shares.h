/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processors are shared between owners (API keys), not between boxes. The busy boxes of one
 * owner together weigh as much as those of another, however many they are; all idle boxes of an
 * owner together weigh a small part of that. A run is busy. A session is busy from any command
 * until one second after a command with is_idle. So execs in quick succession cost no write to
 * the cgroup, and what the server still asks of the box after an exec is done at full weight.
 *
 * Owners are numbers that the holder of the control socket chose. They are compared with each
 * other and never used as an index. */

#include <stdbool.h>
#include <stdint.h>

enum { SHARES_MAX_OWNERS = 4096 /* one for each box */ };

struct box;
struct spawner;

/* Number of boxes of one owner. */
struct share {
    uint32_t owner;
    uint16_t busy;
    uint16_t idle;
};

struct shares {
    struct share items[SHARES_MAX_OWNERS];
    unsigned count;
    unsigned busy_owners;  /* owners that have busy boxes */
    bool is_contended;     /* two owners have busy boxes, or had a moment ago */
    uint64_t contended_ms; /* when two last had, clock_ms() */
    bool is_stale;         /* weights must be checked */
    uint64_t done_ms;      /* when they were last checked, clock_ms() */
    uint64_t idle_ms;      /* when the next box becomes idle, clock_ms(); 0: none does */
};

/* Gives the box to an owner and marks it busy. Its weight changes with shares_weigh() only. */
void shares_enter(struct spawner *s, struct box *box, uint32_t owner);
void shares_set_busy(struct spawner *s, struct box *box);
void shares_set_idle(struct spawner *s, struct box *box);
/* does nothing for a box without an owner */
void shares_leave(struct spawner *s, struct box *box);

/* Writes the weight of this box now. The owner's other boxes follow with shares_tend(): writing
 * all of them at every start would cost more than it is worth. */
void shares_weigh(struct spawner *s, struct box *box);

/* Milliseconds until shares_tend() has something to do; -1: nothing. */
int shares_pause_ms(const struct spawner *s);
void shares_tend(struct spawner *s);
