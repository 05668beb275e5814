/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of the backend `docker`: containers of an engine that speaks Docker's
 * API. A container carries labels that say whose it is; none without them is ever changed. */

#include "backend/engine.h"

/* How the size of the disk is bounded. */
enum docker_disk {
    DISK_QUOTA, /* enforced by the engine's storage driver */
    DISK_TMPFS, /* the root is read-only, and what can be written is in memory */
    DISK_FREE,  /* not enforced */
};

struct docker {
    struct engine engine;
    char name[48];
    char hash[65]; /* of the settings that the container is made with */
    char exec[80]; /* id of the last one */
    int lock_fd;
    bool is_made; /* this session has made the container */
};

/* docker_create.c */
void docker_names(const struct backend *b, struct docker *d);
json_t *docker_config(const struct backend *b, const struct docker *d, enum docker_disk disk);
/* The limits that the engine applies, read from its description of the container. */
uint32_t docker_in_force(const struct backend *b, const json_t *container);
/* Whether the container has the runtime and the network of the row, and is not privileged. */
bool docker_is_isolated(const struct backend *b, const json_t *container);
int docker_archive(const struct backend *b, struct buf *to); /* a tar with the far shell */

/* The value of a label, "" without the label. `labels` is the engine's object. */
const char *docker_label(const json_t *labels, const char *name);
/* Whether this installation made the container, for this row. */
bool docker_is_ours(const struct backend *b, const json_t *labels);

/* docker_tidy.c: removes containers of sessions that are gone and stops idle ones. Never
 * returns. */
_Noreturn void docker_tidy(const struct place_table *table, const char *control_dir);

/* docker.c: the lock between sessions that open a container and the clean-up. */
int docker_lock(const char *control_dir, bool is_exclusive);
int docker_path(char *to, size_t size, const char *container, const char *rest);
enum { DOCKER_PATH = 160 };
