/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The API of the quartermaster code runner (docs/compat-runner.md): its images, and the body of
 * POST /run. */

#include "http/compat/pydantic.h"
#include "service/service.h"

enum { RUNNER_IMAGE_COUNT = 6 };

/* The file in which a program leaves `metadata`. The box has a link from /metadata to the
 * working directory, where files are collected. */
#define RUNNER_METADATA ".quartermaster_metadata.json"

struct runner_image {
    const char *name; /* code-runner-NAME */
    const char *runtime;
    const char *title;
    const char *entrypoint; /* shown by GET /images */
    const char *extension;
    const char *main_file; /* file name for `code` */
};
extern const struct runner_image runner_images[RUNNER_IMAGE_COUNT];

/* Finds an image by name, with or without "code-runner-"; NULL when there is none. */
const struct runner_image *runner_image_find(const char *name);

/* A checked POST /run. */
struct runner_request {
    struct run_spec spec;
    const struct runner_image *image;
    bool is_late; /* its timeout is 0 or less */
};
void runner_request_done(struct runner_request *request);

/* Decodes and checks a body. Returns 0 or negative errno. On error either err is set, or
 * `detail` has items for a 422 reply. The caller calls runner_request_done() in any case. */
int runner_request_decode(const struct state *state, const json_t *body,
    struct runner_request *ret, json_t *detail, struct err *err);

/* Checks the body of POST /prebuild. Nothing else is done with it yet. */
void runner_prebuild_check(const json_t *body, json_t *detail);
