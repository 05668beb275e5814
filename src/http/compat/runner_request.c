/* SPDX-License-Identifier: Apache-2.0 */

/* Decodes bodies of the code runner. First it lists everything that is wrong with the fields.
 * Then it checks, in the original's order, whether the request as a whole makes sense, and
 * makes a run_spec. Missing values come from the DEFAULT_* settings, bounded by the maxima. */

#include "http/compat/runner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "network/policy.h"
#include "state/network.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CODE_MAX = 1 << 20, /* bytes of code and files together */
    FILES_MAX = 4000,
    SHARES_PER_CORE = 1024, /* Docker's default for one container */
    /* The original does not limit these; a box must. */
    PROCESSES = 256,
    OPEN_FILES = 1024,
    OUTPUT_KB = 8 << 10, /* of each stream */
    MEMORY_MIN_MB = 4,
};

static const struct field spec_members[] = {
    {.name = "base_image", .kind = FIELD_TEXT, .required = true},
    {.name = "setup_script", .kind = FIELD_TEXT, .required = true},
};

enum {
    RUN_CODE,
    RUN_IMAGE,
    RUN_FILES,
    RUN_ENTRYPOINT,
    RUN_TIMEOUT,
    RUN_MEMORY,
    RUN_SHARES,
    RUN_DISK,
    RUN_NETWORK,
    RUN_ENVIRONMENT,
    RUN_PREBUILD,
    RUN_FIELDS
};
static const struct field run_fields[RUN_FIELDS] = {
    [RUN_CODE] = {.name = "code", .kind = FIELD_TEXT, .required = true},
    [RUN_IMAGE] = {.name = "image", .kind = FIELD_TEXT},
    [RUN_FILES] = {.name = "files", .kind = FIELD_TEXTS, .nullable = true},
    [RUN_ENTRYPOINT] = {.name = "entrypoint", .kind = FIELD_TEXT, .nullable = true},
    [RUN_TIMEOUT] = {.name = "timeout", .kind = FIELD_NUMBER, .nullable = true},
    [RUN_MEMORY] = {.name = "mem_limit", .kind = FIELD_TEXT, .nullable = true},
    [RUN_SHARES] = {.name = "cpu_shares", .kind = FIELD_NUMBER, .nullable = true},
    [RUN_DISK] = {.name = "disk_limit", .kind = FIELD_TEXT, .nullable = true},
    [RUN_NETWORK] = {.name = "allow_network", .kind = FIELD_BOOL},
    [RUN_ENVIRONMENT] = {.name = "environment", .kind = FIELD_TEXTS, .nullable = true},
    [RUN_PREBUILD] = {.name = "prebuild_spec",
        .kind = FIELD_OBJECT,
        .nullable = true,
        .members = spec_members,
        .member_count = sizeof(spec_members) / sizeof(spec_members[0])},
};

/* State of one decoding. */
struct decoding {
    struct http_request *req;
    const struct state *state;
    const struct config *config;
    struct field_value values[RUN_FIELDS];
    struct runner_request *request;
    json_t *detail;
    struct err *err;
};

void runner_request_done(struct runner_request *request)
{
    run_spec_done(&request->spec);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static const char *text_of(const struct decoding *d, size_t field)
{
    return d->values[field].json ? json_string_value(d->values[field].json) : NULL;
}

static bool has_nul(const json_t *text)
{
    return strlen(json_string_value(text)) != json_string_length(text);
}

/* The reserved names are those by which the original passes code and files to containers. */
static void check_environment(const struct decoding *d)
{
    static const char *const reserved[] = {
        "ENCODED_CODE", "ENCODED_FILES", "CUSTOM_ENTRYPOINT"};
    json_t *object = (json_t *)d->values[RUN_ENVIRONMENT].json;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const char *why =
            run_env_problem(key, json_string_value(value), json_string_length(value));
        for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
            if (str_eq(reserved[i], key))
                why = "the name is reserved";
        }
        if (!why)
            continue;
        fastapi_value_error(
            d->detail, "environment", object, "environment variable '%.128s': %s", key, why);
        return;
    }
}

/* Converts "256m" to MiB, rounded up. 0 when the request has none or it is invalid. */
static uint64_t take_size(const struct decoding *d, size_t field, uint64_t least_mb,
    uint64_t most_mb, const char *setting)
{
    const char *name = run_fields[field].name;
    const json_t *input = d->values[field].json;
    const char *text = text_of(d, field);
    uint64_t bytes;
    if (!text)
        return 0;
    if (has_nul(input) || str_parse_size(text, &bytes) < 0) {
        fastapi_value_error(
            d->detail, name, input, "%s must be a size such as \"256m\" or \"1g\"", name);
        return 0;
    }
    uint64_t mb = bytes / (1 << 20) + (bytes % (1 << 20) != 0);
    if (mb >= least_mb && mb <= most_mb)
        return mb;
    fastapi_value_error(d->detail, name, input,
        "%s must be from %llum to %llum (the server's %s)", name, (unsigned long long)least_mb,
        (unsigned long long)most_mb, setting);
    return 0;
}

/* Docker uses shares as relative weights. Here 1024 shares are one core, also on an idle
 * machine. 0 means Docker's default. */
static uint64_t take_cores(const struct decoding *d)
{
    const struct field_value *value = &d->values[RUN_SHARES];
    uint64_t max_milli = smaller(d->config->max_cpu_cores, d->config->maxima.cpu_milli);
    int64_t max_shares = (int64_t)(max_milli * SHARES_PER_CORE / 1000);
    int64_t shares = (int64_t)d->config->default_cpu_shares;
    if (value->json) {
        fastapi_check_range(
            d->detail, "body", "cpu_shares", value->json, value->number, 0, max_shares);
        shares = value->number ? value->number : SHARES_PER_CORE;
    }
    if (shares > max_shares || shares < 0)
        shares = max_shares;
    uint64_t milli = (uint64_t)shares * 1000 / SHARES_PER_CORE;
    return milli < 50 ? 50 : milli;
}

static uint64_t take_timeout(struct decoding *d)
{
    const struct field_value *value = &d->values[RUN_TIMEOUT];
    uint64_t max_s = smaller(d->config->max_timeout_s, d->config->maxima.wall_ms / 1000);
    if (!value->json)
        return smaller(d->config->default_timeout_s, max_s) * 1000;
    fastapi_check_range(
        d->detail, "body", "timeout", value->json, value->number, INT64_MIN, (int64_t)max_s);
    d->request->is_late = value->number <= 0;
    return d->request->is_late ? 1 : (uint64_t)value->number * 1000;
}

/* Lowers limits to the maxima: a default must not make a run fail. */
static void fit(struct run_limits *limits, const struct run_limits *defaults,
    const struct run_limits *maxima)
{
    limits_fill(limits, defaults);
    for (size_t i = 0; i < limit_count; i++) {
        uint64_t *member = limit_member(limits, &limit_table[i]);
        *member = smaller(*member, *limit_member((struct run_limits *)maxima, &limit_table[i]));
    }
    limits->disk_mb = smaller(limits->disk_mb, limits->memory_mb);
}

/* Files of a box live in its memory, as with Docker's tmpfs. A disk_limit above mem_limit is
 * accepted, but ends at mem_limit. A disk_limit without mem_limit raises the memory. */
static void take_limits(struct decoding *d)
{
    const struct config *c = d->config;
    struct run_limits *limits = &d->request->spec.limits;
    uint64_t max_memory = smaller(c->runner_max_memory_mb, c->maxima.memory_mb);
    uint64_t memory = take_size(d, RUN_MEMORY, MEMORY_MIN_MB, max_memory, "MAX_MEMORY_MB");
    uint64_t disk = take_size(d, RUN_DISK, 1, c->runner_max_disk_mb, "MAX_DISK_MB");
    if (!memory) {
        memory = (c->default_memory + (1 << 20) - 1) >> 20;
        memory = smaller(disk > memory ? disk : memory, max_memory);
    }
    limits->memory_mb = memory;
    limits->disk_mb = disk ? disk : (c->default_disk + (1 << 20) - 1) >> 20;
    limits->disk_mb = smaller(limits->disk_mb, memory);
    limits->file_size_mb = limits->disk_mb;
    limits->cpu_milli = take_cores(d);
    limits->wall_ms = take_timeout(d);
    limits->cpu_ms = limits->wall_ms * (limits->cpu_milli / 1000 + 1);
    limits->processes = PROCESSES;
    limits->open_files = OPEN_FILES;
    limits->output_kb = OUTPUT_KB;
}

static int check_size(const struct decoding *d)
{
    json_t *files = (json_t *)d->values[RUN_FILES].json;
    size_t size = json_string_length(d->values[RUN_CODE].json);
    const char *name;
    json_t *content;
    json_object_foreach(files, name, content)
    {
        size += json_string_length(content);
    }
    if (size > CODE_MAX || json_object_size(files) > FILES_MAX)
        return err_set(d->err, ERR_TOO_LARGE, EFBIG,
            "code and files are %zu bytes in %zu files; at most %d bytes and %d files are "
            "taken",
            size, json_object_size(files), CODE_MAX, FILES_MAX);
    return 0;
}

static int add_file(struct decoding *d, const char *name, const json_t *content)
{
    size_t size = json_string_length(content);
    char *copy = malloc(size + 1);
    if (!copy)
        return state_full(d->err);
    memcpy(copy, json_string_value(content), size + 1);
    run_files_add(&d->request->spec.files, name, copy, size, false);
    return 0;
}

static int take_files(struct decoding *d)
{
    const char *name;
    json_t *content;
    json_object_foreach((json_t *)d->values[RUN_FILES].json, name, content)
    {
        const char *why = strstr(name, "..") ? "`..` is not allowed in it"
                                             : str_name_problem(name, strlen(name));
        if (why)
            return err_set(
                d->err, ERR_INVALID, EINVAL, "Invalid filename: %.256s (%s)", name, why);
        int r = add_file(d, name, content);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Adds the SDK to the working directory, as the original does. Files of the user with the same
 * name win. */
static void add_sdk(struct run_files *files, const struct run_files *sdk)
{
    size_t own = files->count;
    for (size_t i = 0; i < sdk->count; i++) {
        const char *name = sdk->items[i].name;
        size_t len = strcspn(name, "/");
        bool is_taken = false;
        for (size_t k = 0; k < own && !is_taken; k++) {
            const char *other = files->items[k].name;
            is_taken = strncmp(name, other, len) == 0 && (other[len] == '/' || !other[len]);
        }
        if (is_taken)
            continue;
        run_files_lend(files, name, &sdk->items[i], false);
    }
}

/* Finds the image, or explains why there is none. */
static int take_image(struct decoding *d)
{
    const json_t *given = d->values[RUN_IMAGE].json;
    const char *name = given ? json_string_value(given) : "python";
    if (given && has_nul(given))
        return err_set(d->err, ERR_NOT_FOUND, ENOENT,
            "Image 'prebuilt-%.128s' not found: its name contains a NUL character", name);
    const struct runner_image *image = runner_image_find(name);
    if (!image)
        return runner_prebuilt_take(
            d->req, name, d->values[RUN_PREBUILD].json, d->request, d->err);
    d->request->image = image;
    d->request->spec.runtime = runtime_find(&d->state->runtimes, image->runtime);
    const struct runtime *rt = d->request->spec.runtime;
    if (!rt || !rt->available)
        return err_set(d->err, ERR_NOT_FOUND, ENOENT, "Image 'code-runner-%s' not found: %s",
            image->name, rt ? rt->missing : "the server has no such runtime");
    return 0;
}

static int take_network(const struct decoding *d)
{
    const struct field_value *value = &d->values[RUN_NETWORK];
    bool wanted = value->json ? value->number : d->config->default_allow_network;
    if (wanted)
        d->request->spec.network = network_policy_new(NETWORK_FULL);
    return state_network_check(d->state, d->request->spec.network, NULL, d->err);
}

static void take_environment(struct decoding *d)
{
    struct strv *env = &d->request->spec.env;
    const char *key;
    json_t *value;
    strv_add(env, "HOME=/tmp");
    json_object_foreach((json_t *)d->values[RUN_ENVIRONMENT].json, key, value)
    {
        strv_add_owned(env, xasprintf("%s=%s", key, json_string_value(value)));
    }
}

static int make_spec(struct decoding *d)
{
    struct run_spec *spec = &d->request->spec;
    const struct run_limits *maxima = &d->config->maxima;
    const json_t *code = d->values[RUN_CODE].json;
    const char *entrypoint = text_of(d, RUN_ENTRYPOINT);
    const char *main_file = d->request->image->main_file;
    int r = 0;
    if (json_string_length(code) > 0 && !run_files_find(&spec->files, main_file))
        r = add_file(d, main_file, code);
    if (r < 0)
        return r;
    add_sdk(&spec->files, &spec->runtime->sdk);
    if (entrypoint && *entrypoint)
        spec->shell = xstrdup(entrypoint);
    else
        spec->entry = xstrdup(main_file);
    strv_add(&spec->collect, RUNNER_METADATA);
    take_environment(d);
    fit(&spec->limits, &spec->runtime->limits, maxima);
    fit(&spec->compile_limits, &spec->runtime->compile_limits, maxima);
    return 0;
}

static void check_spec(const struct decoding *d)
{
    const json_t *spec = d->values[RUN_PREBUILD].json;
    const char *why =
        spec ? runner_script_problem(json_object_get(spec, "setup_script")) : NULL;
    if (why)
        fastapi_value_error(d->detail, "prebuild_spec", spec, "%s", why);
}

int runner_request_decode(struct http_request *req, const json_t *body,
    struct runner_request *ret, json_t *detail, struct err *err)
{
    struct decoding d = {.req = req,
        .state = req->state,
        .config = &req->state->config,
        .request = ret,
        .detail = detail,
        .err = err};
    *ret = (struct runner_request){0};
    run_spec_init(&ret->spec);
    fastapi_check(body, run_fields, RUN_FIELDS, d.values, detail);
    check_environment(&d);
    check_spec(&d);
    take_limits(&d);
    const json_t *entrypoint = d.values[RUN_ENTRYPOINT].json;
    if (entrypoint && has_nul(entrypoint))
        fastapi_value_error(
            detail, "entrypoint", entrypoint, "entrypoint contains a NUL character");
    if (json_array_size(detail) > 0)
        return -EINVAL;
    if (json_string_length(d.values[RUN_CODE].json) == 0 &&
        (!entrypoint || json_string_length(entrypoint) == 0))
        return err_set(
            err, ERR_INVALID, EINVAL, "there is nothing to run: give code, entrypoint or both");
    int r = check_size(&d);
    if (r == 0)
        r = take_files(&d);
    if (r == 0)
        r = take_image(&d);
    if (r == 0)
        r = take_network(&d);
    return r < 0 ? r : make_spec(&d);
}
