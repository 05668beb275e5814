/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How the engine gets copies of template boxes: boxes of a user's image in which an interpreter
 * has imported the image's modules and waits (docs/internals/warm.md). The keeper is in a
 * higher layer (service/templates.h); an engine without a keeper has none. */

#include "lang/runtime.h"
#include "run/run.h"

/* A run that could be a copy. */
struct template_use {
    const struct run_image *image;
    const struct runtime *runtime;
    uint32_t owner; /* as in run_spec: copies of a template have one owner */
    const struct run_limits *limits;
    int in_fd; /* ends for the box: stdin, or -1; stdout; stderr */
    int out_fd;
    int err_fd;
};

struct template_copy {
    int socket;                 /* commands and events of its box, as of any other */
    int channel;                /* on which it takes a struct zygote_hand */
    struct spawn_event started; /* EVENT_STARTED */
    void *held;                 /* for give() */
};

struct template_keeper {
    void *context;
    /* Makes a copy. Returns NULL, or why the run starts cold (`isolation.start_reason`). */
    const char *(*copy)(
        void *context, const struct template_use *use, struct template_copy *ret);
    /* The copy is gone. */
    void (*give)(void *context, void *held);
};

/* Answers of templates on their channel, and of `copy` when no template fits the run. */
#define TEMPLATE_NONE "image"      /* the image has nothing to import ahead, or none is kept */
#define TEMPLATE_FAILED "template" /* there was a template, but it failed */
#define TEMPLATE_FULL "busy"       /* the template has its maximum of copies */
#define TEMPLATE_LIMITS "limits"   /* a copy cannot have the limits of the run */
