/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where the whole of an output goes of which an answer only has both ends. */

#include "base/ledger.h"
#include "session/capture.h"

struct session;

struct spill {
    int fd; /* -1 while all of it fits into the capture */
    bool has_failed;
    uint64_t size;
    struct purse purse; /* bytes of the file that may be written */
};

/* `disk` counts the files of all, with a share for each owner. */
void spill_init(struct spill *spill, struct ledger *disk, int owner);
void spill_done(struct spill *spill);

/* Call it before the same bytes go to the capture. Costs nothing until they do not fit. Where
 * the disk has no room, there is no file. */
void spill_add(struct spill *spill, struct session *s, const struct capture *c,
    const char *data, size_t len);

/* Writes it into the box. False when there is none, or no room for it. */
bool spill_deliver(struct spill *spill, struct session *s, const char *name);
