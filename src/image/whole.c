/* SPDX-License-Identifier: Apache-2.0 */

/* Finds the interpreter of a whole root. It is asked for its version in an ordinary box: what
 * it prints is a stranger's text. */

#include "image/build.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PROBE_MS = 60000, PROBE_MB = 512, PROBE_PROCESSES = 64 };

/* In the order in which they are looked for. */
static const struct {
    const char *language, *code;
} probes[] = {
    {"python", "import sys\nprint('%d.%d.%d' % sys.version_info[:3])\n"},
    {"javascript", "console.log(process.versions.node)\n"},
    {"bash", "v=${BASH_VERSION:-sh}; echo \"${v%%(*}\"\n"},
};
enum { PROBE_COUNT = sizeof(probes) / sizeof(probes[0]) };

struct run_limits image_probe_limits(void)
{
    struct run_limits limits = {
        .wall_ms = PROBE_MS, .memory_mb = PROBE_MB, .processes = PROBE_PROCESSES};
    limits_fill(&limits, &(struct run_limits){0});
    return limits;
}

bool image_version_read(const char *text, size_t size, char version[64])
{
    size_t len = size && text[size - 1] == '\n' ? size - 1 : size;
    if (len == 0 || len >= 64)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < ' ' || text[i] > '~')
            return false;
    }
    memcpy(version, text, len);
    version[len] = '\0';
    return true;
}

/* Runs a short program in the image. False when there is no interpreter at that path, or it
 * does not answer as one. */
static bool ask(const struct image_builder *b, size_t number, const struct run_image *image,
    struct image_kind *to, struct err *err)
{
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_result_done) struct run_result result;
    const struct run_watch watch = {.cancel_fd = b->cancel_fd};
    const struct run_variant variant = {
        .stdin_fd = -1, .box_stdin_fd = -1, .box_stdout_fd = -1};
    const char *code = probes[number].code;
    run_spec_init(&spec);
    run_result_init(&result, 64 << 10);
    spec.runtime = to->runtime;
    spec.image = run_image_copy(image);
    spec.limits = image_probe_limits();
    limits_cap(&spec.limits, engine_maxima(b->engine));
    run_files_add(&spec.files, to->runtime->main_file, xstrdup(code), strlen(code), false);
    int r = image_box_run(b, &spec, &variant, &watch, &result, err);
    if (b->cpu_ms)
        *b->cpu_ms += result.run.usage.cpu_ms;
    if (r == -ENOENT || r == -ENOEXEC || r == -EACCES || r == -ELOOP || r == -ENOTDIR)
        *err = (struct err){0}; /* there is no such program, or none that can be executed */
    return r == 0 && result.run.status == RUN_OK &&
           image_version_read(result.run.out.data, result.run.out.len, to->version);
}

static bool probe(const struct image_builder *b, size_t number, struct run_image *image,
    struct image_kind *to, struct err *err)
{
    const struct strv *more = &to->runtime->run.image_programs;
    for (size_t i = 0; i <= more->count; i++) {
        const char *program =
            i < more->count ? more->items[i] : to->runtime->run_root.execs.items[0];
        struct err why = {0};
        if (!image_find_program(to->runtime, program, image))
            continue;
        (void)snprintf(to->program, sizeof(to->program), "%s", program);
        if (ask(b, number, image, to, &why))
            return true;
        if (why.code)
            *err = why;
    }
    return false;
}

int image_whole_find(const struct image_builder *b, const struct runtime_registry *runtimes,
    const struct runtime *wanted, const json_t *digests, struct image_kind *to, struct err *err)
{
    struct run_image image = {.is_whole = true};
    to->is_whole = true;
    struct err why = {0};
    int r = image_layers_read(digests, &image);
    (void)snprintf(image.id, sizeof(image.id), "(new)");
    for (size_t i = 0; r == 0 && i < PROBE_COUNT; i++) {
        to->runtime = runtime_find(runtimes, probes[i].language);
        if (to->runtime && to->runtime->available && (!wanted || wanted == to->runtime) &&
            probe(b, i, &image, to, &why))
            return 0;
    }
    if (why.code) { /* a box could not be made at all */
        *err = why;
        return -EIO;
    }
    if (wanted)
        return err_field(err, "language",
            "the root file system has no %s that runs: it is looked for in /usr/local/bin and "
            "/usr/bin",
            wanted->name);
    return err_field(err, "language",
        "the root file system has no interpreter that runs: python3, node and sh are looked "
        "for in /usr/local/bin, /usr/bin and /bin");
}
