/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The surface of the quartermaster code runner (docs/compat-runner.md): its images, and the
 * body of POST /run. */

#include "http/compat/pydantic.h"
#include "service/service.h"

enum { RUNNER_IMAGE_COUNT = 6 };

/* The file in the box by which a program hands over `metadata`; the box's tree has a link from
 * /metadata to the working directory, which is where files are collected. */
#define RUNNER_METADATA ".quartermaster_metadata.json"

struct runner_image {
    const char *name; /* code-runner-NAME */
    const char *runtime;
    const char *title;
    const char *entrypoint; /* as /images shows it */
    const char *extension;
    const char *main_file; /* where `code` goes */
};
extern const struct runner_image runner_images[RUNNER_IMAGE_COUNT];

/* By name, with or without "code-runner-"; NULL when there is none. */
const struct runner_image *runner_image_find(const char *name);

/* A POST /run that may be run. */
struct runner_request {
    struct run_spec spec;
    const struct runner_image *image;
    bool is_late; /* its timeout is over before it begins */
};
void runner_request_done(struct runner_request *request);

/* Decodes and checks a body, which is 0 or a negative errno: with err set, or, where *detail
 * got items, for a 422 with these. The caller gives *ret to runner_request_done() in any case.
 */
int runner_request_decode(const struct state *state, const json_t *body,
    struct runner_request *ret, json_t *detail, struct err *err);

/* The body of POST /prebuild, of which nothing but problems is kept so far. */
void runner_prebuild_check(const json_t *body, json_t *detail);
