/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The API of the quartermaster code runner (docs/compat-runner.md): its images, and the body of
 * POST /run. The body is parsed in runner_request.c; prebuilt images are in prebuild.c. */

#include "http/compat/pydantic.h"
#include "service/service.h"

enum { RUNNER_IMAGE_COUNT = 6 };

/* The file in which a program leaves `metadata`. The box has a link from /metadata to the
 * working directory, where files are collected. */
#define RUNNER_METADATA ".quartermaster_metadata.json"

struct runner_image {
    const char *name; /* code-runner-NAME */
    const char *runtime;
    const char *repository; /* what Docker calls the base of the original's image */
    const char *title;
    const char *entrypoint; /* shown by GET /images */
    const char *extension;
    const char *main_file; /* file name for `code` */
};
extern const struct runner_image runner_images[RUNNER_IMAGE_COUNT];

/* Finds an image by name, with or without "code-runner-"; NULL when there is none. */
const struct runner_image *runner_image_find(const char *name);

/* The same for the base of a prebuilt image, which may also be what Docker calls it, with any
 * tag: the version is the server's. */
const struct runner_image *runner_base_find(const char *name);

/* A checked POST /run. */
struct runner_request {
    struct run_spec spec;
    const struct runner_image *image;
    bool is_late; /* its timeout is 0 or less */
};
void runner_request_done(struct runner_request *request);

/* Decodes and checks a body, and builds its image if that is asked for. Returns 0 or negative
 * errno. On error either err is set, or `detail` has items for a 422 reply. The caller calls
 * runner_request_done() in any case. */
int runner_request_decode(struct http_request *req, const json_t *body,
    struct runner_request *ret, json_t *detail, struct err *err);

/* Finds a prebuilt image for a run, or any other image by its name, and fills in `image`,
 * spec.runtime and spec.image. Builds it if it is missing and there is a prebuild_spec (or
 * NULL). */
int runner_prebuilt_take(struct http_request *req, const char *asked, const json_t *spec,
    struct runner_request *to, struct err *err);

/* NULL, or why a string of a request is not a valid setup script. */
const char *runner_script_problem(const json_t *script);
