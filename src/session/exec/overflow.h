/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Keeps the whole output of an exec when the answer only has room for both ends of it. */

#include "base/ledger.h"
#include "session/exec/capture.h"

struct session;

struct spill {
    int fd; /* -1 while everything fits into the capture */
    bool has_failed;
    uint64_t size;
    struct purse purse; /* disk space reserved for the file */
};

/* `disk` counts the disk space of all such files, with a share for each owner. */
void spill_init(struct spill *spill, struct ledger *disk, int owner);
void spill_done(struct spill *spill);

/* Call this before capture_add() with the same bytes. It does nothing while they fit into the
 * capture. When the disk has no room, there will be no file. */
void spill_add(struct spill *spill, struct session *s, const struct capture *c,
    const char *data, size_t len);

/* Writes the output to a file in the box. False when there is none, or the box has no room. */
bool spill_deliver(struct spill *spill, struct session *s, const char *name);
