/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The host ids that boxes run as. Each live box has a slot: two host ids of its own, one for
 * box init and one for the payload, because the kernel counts much per uid (processes, inotify,
 * pipes, keys). Slots are claimed in blocks by locks on one file for the whole host, so that
 * instances do not use the same ids. A box that can be copied has a whole block: one id for
 * each copy. A rootless spawner first enters a user namespace of its own, where it is root over
 * its subordinate ids or, without any, over its own id alone. */

#include "proto/box.h"
#include "proto/spawn.h"
#include "spawn/setup.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    IDS_PER_SLOT = 2,
    SLOTS_PER_BLOCK = 16,
    IDS_PER_BLOCK = IDS_PER_SLOT * SLOTS_PER_BLOCK,
    MAX_BLOCKS = 2048, /* blocks of one instance */
};

struct id_block {
    uint32_t number;
    uint32_t used; /* bit per slot */
};

struct ids {
    bool rootless;
    bool unique; /* every box has ids of its own */
    uid_t base;  /* first id of the range, as seen from the spawner's user namespace */
    uint32_t blocks_in_range;
    int lock_fd;
    struct id_block blocks[MAX_BLOCKS];
    unsigned block_count;
    int reason; /* why ids are not unique: negative errno */
};

/* Prepares the spawner: root drops its supplementary groups, anyone else enters a user and a
 * mount namespace of its own. Returns 0 or negative errno. */
int ids_enter(struct ids *ids, struct setup *setup);

/* Whether boxes shall have ids of their own: a rootless spawner may lack subordinate ids. */
bool ids_are_own(const struct ids *ids);

/* Sets the range that hermes-setup has chosen. The lock file comes with the same answer, except
 * to a rootless spawner, which has it already. -ERANGE: the range is too small. */
int ids_set_range(struct ids *ids, const struct setup_answer *answer);

/* Returns a slot number or negative errno (-EAGAIN: every id of the range is taken). */
int ids_claim(struct ids *ids, bool whole_block);
void ids_release(struct ids *ids, int slot, bool whole_block);

/* Host id (in the spawner's user namespace) of the payload of a slot. */
uid_t ids_payload(const struct ids *ids, int slot);

/* Writes setgroups, uid_map and gid_map of a box whose /proc/PID directory is proc_pid_fd. With
 * BOX_FORKS the ids above the payload's are mapped, too, for copies. */
int ids_map(const struct ids *ids, int slot, uint32_t flags, int proc_pid_fd);

static_assert(SPAWN_MAX_FORKS == IDS_PER_BLOCK - IDS_PER_SLOT, "one id for each fork");
