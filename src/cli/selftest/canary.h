/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the attack cases go for: things of the host that hold a secret and notice a touch. Each
 * run of a case has its own set, so that whoever touches one is known. */

#include "base/err.h"
#include "base/id.h"
#include "run/run.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Where all sets live, and the secret that is in every one of them. */
struct canary_home {
    char dir[64]; /* /var/tmp/hermes-selftest-PID-XXXXXX: a box has a /tmp of its own */
    char token[ID_MAX];
};

/* Also puts the token into our environment, as HERMES_CANARY: call it before any thread starts.
 */
int canary_home_make(struct canary_home *home, struct err *err);
void canary_home_remove(struct canary_home *home);

struct canary {
    const struct canary_home *home;
    char dir[128];  /* a directory with a file in it */
    char file[128]; /* readable for everybody: only the box keeps it from a probe */
    struct stat dir_stat, file_stat;
    int tcp_fd[2]; /* on 127.0.0.1 and ::1 */
    unsigned port;
    int unix_fd;
    char abstract[ID_MAX]; /* its name, without the NUL */
    int shm_key, shm_id;   /* System V */
    char shm_name[48];     /* POSIX: "/hermes-canary-KEY" */
};

int canary_plant(struct canary *c, const struct canary_home *home, struct err *err);
/* Adds CANARY_FILE, CANARY_DIR, CANARY_PORT, CANARY_ABSTRACT, CANARY_SHM. */
void canary_env(const struct canary *c, struct strv *env);
/* False when something was touched; why then says what. */
bool canary_check(struct canary *c, char *why, size_t why_size);
void canary_remove(struct canary *c);
