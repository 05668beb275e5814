/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of an engine, for run/engine.c, run/register.c and run/handed_over.c, and for
 * session/box.c and service/calibrate.c. */

#include "lang/seed.h"
#include "network/hub.h"
#include "run/engine.h"

#include <stdatomic.h>

enum {
    ROOT_COMPILE,
    ROOT_RUN,
    ROOT_HOST_COMPILE,
    ROOT_HOST_RUN,
    ROOT_SESSION,
    ROOT_WHOLE,
    ROOT_KINDS
};

/* The seed of one runtime (lang/seed.h). */
struct engine_seed {
    struct seed_place place;
    atomic_bool is_needed; /* a box has worked without it */
};

struct engine {
    struct spawner_client spawner;
    const struct runtime_registry *runtimes;
    struct run_limits maxima;
    struct network_hub network;
    struct cache *cache; /* or NULL */
    bool cache_shared;
    size_t source_count;
    bool has_seeds; /* the directory that seeds are made in is the source seed_source */
    unsigned seed_source;
    struct engine_seed *seeds; /* per runtime */
    bool has_images; /* a directory of layers was registered; the last source is `incoming` */
    struct image_roots *images;              /* run/image_root.h */
    const struct template_keeper *templates; /* or NULL */
    char *image_text;                        /* or NULL */
    _Atomic uint64_t *warm_base_kb;          /* per runtime: see service/calibrate.h */
    int (*roots)[ROOT_KINDS]; /* per runtime: index of the root in the spawner's table, or -1 */
    struct root_walks walks;  /* empty but while roots are registered */
    struct root_entries registered[SPAWN_MAX_ROOTS];
    size_t registered_count;
    int egress_fd;    /* for SPAWN_EGRESS, until it was sent; -1 for none */
    pid_t egress_pid; /* of hermes-egress that this engine has started; -1 for none */
};

/* Converts the limits of a session's box to the spawner's units. CPU time is limited for each
 * exec, not for the box, so that ready boxes fit any session. */
void engine_session_limits(const struct run_limits *from, struct spawn_limits *to);

/* The flags of a request for the box of a session. */
uint32_t engine_session_flags(const struct runtime *rt);

/* Registers a zygote of a runtime, for programs or for sessions: of its own root (image NULL),
 * or of `root` with an image. */
int engine_register_zygote(struct engine *e, size_t index, const struct engine_options *options,
    bool is_session, const struct engine_image *image, int root, struct err *err);

/* run/register_image.c: adds what a zygote of an image has beyond that of its language. */
void engine_zygote_words(const struct engine_image *image, struct strv *argv, struct strv *env);
int engine_register_image(struct engine *e, const struct engine_options *options,
    const struct engine_image *image, struct err *err);

void engine_open_cache(struct engine *e, const struct engine_options *options);
