/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The parts of hermes-network. */

#include "kit/batch.h"
#include "proto/kit.h"

#include <stdbool.h>

/* --- rules.c: the messages, which are the same for every box */

/* What a box's namespace gets, by family. The rules come as a whole, with or without IPv6: one
 * table that holds all of them, so it is there or it is not. */
struct kit_batches {
    struct batch routes4, routes6;
    struct batch rules4, rules; /* for IPv4 alone; for both families */
    struct batch reports;       /* asks for the packets that the rules report */
};

/* Builds them: 0 or -ENOSPC. */
int rules_prepare(struct kit_batches *ret);

/* A table and a chain with one rule, which needs this part: PART_RULES, PART_LIMIT, PART_LOG or
 * PART_TPROXY. Each has a table of its own. */
int rules_prepare_probe(struct batch *ret, enum kit_part part);

/* --- install.c */

struct kit {
    int fds[KIT_COUNT]; /* -1 for those of IPv6 without it */
    bool has_v6;
};

/* Puts a kit into the caller's namespace. On failure (negative errno) *ret_part names the part,
 * nothing is open, and the namespace must be thrown away. */
int kit_install(const struct kit_batches *batches, struct kit *ret, enum kit_part *ret_part);
void kit_close(struct kit *kit);

/* --- place.c: where hermes-network is, and namespaces */

/* Leaves the host's network for a namespace of our own, in which nothing is ever done. */
int place_begin(void);

/* Moves the caller into a new namespace whose loopback is up and returns a descriptor of it. A
 * kit can be installed there. On failure *ret_part names the part. */
int place_make(enum kit_part *ret_part);

/* Moves the caller into a namespace, by a descriptor of it or by a pidfd. place_enter_box()
 * refuses the namespace of the host, which must never get a kit. */
int place_enter(int fd);
int place_enter_box(int fd);

/* Returns to the own namespace. Otherwise the namespace of the box would live as long as this
 * process. */
int place_leave(void);

/* --- probe.c */

/* Tries everything in new namespaces: 0, or the error of the part that is missing first. Fills
 * in has_v6, missing and part. */
int probe_kit(const struct kit_batches *batches, struct kit_answer *ret);

/* --- fault.c: in the build for tests, makes a part fail */
#ifdef KIT_FAULTS
int fault_error(enum kit_part part);
#else
static inline int fault_error(enum kit_part part)
{
    (void)part;
    return 0;
}
#endif
