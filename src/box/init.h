/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Box init (pid 1), once the box is made. Separate from inside.h, because a warm box runs this
 * part as a program of its own. */

#include "box/inside.h"

/* Forks the program's process and watches it; in a session, also each next program. Returns 0
 * in the program's process. Never returns in box init. */
int init_run(struct inside *in);

/* Watches the program to its end, reports the end, and has files collected. `is_parked`: a
 * ready box, which learns only with its package whether files are wanted. */
void init_watch(struct inside *in, int payload, bool is_parked);

/* Box init of a warm run is born in the zygote's memory, which costs less than a copy, and then
 * executes this program (init_main.c), which lies in the box's root tree. Its arguments are
 * numbers. It inherits the init link, the descriptors for collecting files, and the gate. The
 * program's process waits at the gate until box init has written to it how much CPU time the
 * set-up took. */
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

/* Executes INIT_PROGRAM. Returns only on failure, with negative errno. */
int init_exec(const struct inside *in, int payload, int gate);
