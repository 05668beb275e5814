/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The targets of attack cases: things on the host that hold a secret and show when they were
 * touched. Each run of a case has its own set, so that a touched canary identifies the case. */

#include "base/err.h"
#include "base/id.h"
#include "run/run.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* The directory of all sets, and the secret that every canary holds. */
struct canary_home {
    char dir[64]; /* /var/tmp/hermes-selftest-PID-XXXXXX, because a box has its own /tmp */
    char token[ID_MAX];
};

/* Makes the directory and the secret. */
int canary_home_make(struct canary_home *home, struct err *err);
void canary_home_remove(struct canary_home *home);

struct canary {
    const struct canary_home *home;
    char dir[128];  /* a directory that contains a file */
    char file[128]; /* world-readable: only the box keeps a probe from reading it */
    struct stat dir_stat, file_stat;
    int tcp_fd[2]; /* on 127.0.0.1 and ::1 */
    unsigned port;
    int unix_fd;
    char abstract[ID_MAX]; /* name of an abstract socket, without the leading NUL */
    int shm_key, shm_id;   /* System V shared memory */
    char shm_name[48];     /* POSIX shared memory: "/hermes-canary-KEY" */
};

int canary_plant(struct canary *c, const struct canary_home *home, struct err *err);
/* Adds CANARY_FILE, CANARY_DIR, CANARY_PORT, CANARY_ABSTRACT, CANARY_SHM. */
void canary_env(const struct canary *c, struct strv *env);
/* False when the canary was touched; `why` then tells which part of it. */
bool canary_check(struct canary *c, char *why, size_t why_size);
void canary_remove(struct canary *c);
