/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One template box: an ordinary, confined box of a user's image whose interpreter has imported
 * the image's modules (runtimes/python/template.py), and the copies of it. The interpreter has
 * run code of the image, so whatever it answers is bounded and not trusted: the spawner
 * confines and checks each copy (spawn/copy.h). */

#include "base/err.h"
#include "run/engine.h"
#include "run/template.h"

#include <stdatomic.h>

enum { TEMPLATE_REASON = 200 };

struct template_spec {
    struct engine *engine;
    const struct runtime *runtime;
    const struct run_image *image;
    uint32_t owner;
    uint64_t memory_mb;
    const atomic_bool *cancel; /* give up when it becomes true */
};

struct template_box {
    int socket;  /* -1: none */
    int channel; /* to its interpreter */
    int text_fd; /* its stdout and stderr until it serves */
    struct image_root *image;
    struct run_limits limits;
    uint64_t memory_bytes; /* memory of its interpreter, which its copies share */
    uint64_t cpu_ns;       /* CPU time that it has used */
};

void template_box_init(struct template_box *box);

/* The limits of a template box with this much memory. */
struct run_limits template_limits(
    const struct engine *engine, const struct runtime *runtime, uint64_t memory_mb);

/* Starts one and waits until it is ready. On failure returns negative errno and says why. */
int template_box_open(
    const struct template_spec *spec, struct template_box *ret, char reason[TEMPLATE_REASON]);

/* Makes a copy with the limits of `use`; one at a time. 0; -EAGAIN: it has as many copies as it
 * can; another negative errno: it failed, and `reason` says why. */
int template_box_copy(struct template_box *box, const struct template_use *use,
    struct template_copy *ret, char reason[TEMPLATE_REASON]);

/* Asks for the usage of the box. template_box_lives() takes the answer. */
void template_box_ask(const struct template_box *box);

/* Whether the box still lives. */
bool template_box_lives(struct template_box *box);

/* Ends it. Copies go on. */
void template_box_close(struct template_box *box);
