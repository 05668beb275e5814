/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Box init, from the moment the box is made. */

#include "box/inside.h"

/* Starts the program, and the next ones of a session. Returns 0 in the program's process, and
 * does not return in init. */
int init_run(struct inside *in);

/* Watches the program to its end, tells of it, and has files collected. `is_parked`: whether
 * any are wanted comes with the job. */
void init_watch(struct inside *in, int payload, bool is_parked);

/* Init of a warm box is born in the zygote's memory, which costs less than a copy, and goes on
 * as this program (init_main.c), which is in the box's tree. Its arguments are numbers; of the
 * descriptors it gets the link, those for collecting files, and the gate, at which the
 * program's process waits until init has told the processor time that it took so far. */
#define INIT_PROGRAM "/usr/lib/hermes/hermes-init"
enum init_arg {
    INIT_LINK = 1,
    INIT_GATE,
    INIT_PAYLOAD,
    INIT_JOB,
    INIT_COLLECT,
    INIT_LANDLOCK,
    INIT_PARKED,
    INIT_ARGC
};

/* Becomes it. Returns only negative errno. */
int init_exec(const struct inside *in, int payload, int gate);
