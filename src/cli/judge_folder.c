/* SPDX-License-Identifier: Apache-2.0 */

/* See judge_folder.h. The folder becomes the body of a POST /v1/judge without tests, which the
 * server's decoder reads. Tests stay in their files until they run. */

#include "cli/judge_folder.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "cli/language.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SOURCE_MAX = 16 << 20 }; /* bytes of one file */

void problem_done(struct problem *problem)
{
    json_judge_done(&problem->judge);
    runtime_registry_done(&problem->runtimes);
}

/* Loads a language: the named one, or that of the file. *ret_name is its name. */
static int add_runtime(struct problem *p, const char *language, const char *file,
    const char **ret_name, struct err *err)
{
    struct runtime_registry one = {0};
    int r = language_load(&one, p->dirs, language, file, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < p->runtimes.count; i++) {
        if (str_eq(p->runtimes.items[i].name, one.items[0].name)) {
            runtime_registry_done(&one);
            *ret_name = p->runtimes.items[i].name;
            return 0;
        }
    }
    p->runtimes.items =
        xreallocarray(p->runtimes.items, p->runtimes.count + 1, sizeof(*p->runtimes.items));
    p->runtimes.items[p->runtimes.count++] = one.items[0];
    *ret_name = one.items[0].name;
    free(one.items);
    return 0;
}

static int add_file(json_t *files, const char *path, const char *name, struct err *err)
{
    cleanup_buf struct buf b = {.max = SOURCE_MAX};
    int r = fs_read_file(AT_FDCWD, path, &b);
    if (r < 0)
        return err_set(err, ERR_NOT_FOUND, -r, "cannot read %s: %s", path, strerror(-r));
    cleanup_free char *content = base64_text(b.data ? b.data : "", b.len);
    (void)json_array_append_new(files,
        json_pack("{s:s, s:s, s:s}", "name", name, "content", content, "encoding", "base64"));
    return 0;
}

/* Adds language, files and entry of a program to `to`, together with the folder's headers. */
static int add_program(struct problem *p, json_t *to, const char *path, const char *language,
    const struct strv *headers, const char *dir, struct err *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *runtime = NULL;
    json_t *files = json_array();
    int r = add_runtime(p, language, name, &runtime, err);
    if (r == 0)
        r = add_file(files, path, name, err);
    for (size_t i = 0; r == 0 && headers && i < headers->count; i++) {
        cleanup_free char *header = xasprintf("%s/%s", dir, headers->items[i]);
        r = add_file(files, header, headers->items[i], err);
    }
    if (r < 0) {
        json_decref(files);
        return r;
    }
    (void)json_object_set_new(to, "language", json_string(runtime));
    (void)json_object_set_new(to, "entry", json_string(name));
    (void)json_object_set_new(to, "files", files);
    return 0;
}

/* Reads problem.json; an empty object when there is none. */
static int read_settings(const char *dir, json_t **ret, struct err *err)
{
    static const char *const from_files[] = {
        "language", "code", "files", "entry", "tests", "async", "output_encoding"};
    cleanup_free char *path = xasprintf("%s/problem.json", dir);
    cleanup_buf struct buf b = {.max = SOURCE_MAX};
    int r = fs_read_file(AT_FDCWD, path, &b);
    if (r == -ENOENT) {
        *ret = json_object();
        return 0;
    }
    if (r < 0)
        return err_set(err, ERR_INVALID, -r, "cannot read %s: %s", path, strerror(-r));
    if ((r = json_run_parse(b.data ? b.data : "", b.len, ret, err)) < 0)
        return err_wrap(err, r, "%s", path);
    for (size_t i = 0; i < sizeof(from_files) / sizeof(from_files[0]); i++) {
        if (json_object_get(*ret, from_files[i])) {
            json_decref(*ret);
            return err_field(err, from_files[i],
                "remove `%s` from problem.json: the solution and the tests are files",
                from_files[i]);
        }
    }
    return 0;
}

/* The names of what the folder contains. */
struct listing {
    struct strv inputs; /* NAME of each NAME.in */
    struct strv headers;
    char *checker, *interactor; /* file names, or NULL */
};

static void listing_done(struct listing *listing)
{
    strv_done(&listing->inputs);
    strv_done(&listing->headers);
    free(listing->checker);
    free(listing->interactor);
}

static int by_version(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static int list(const char *dir, struct listing *ret, struct err *err)
{
    cleanup_closedir DIR *d = opendir(dir);
    const struct dirent *entry;
    if (!d)
        return err_set(err, ERR_NOT_FOUND, errno, "cannot read %s: %s", dir, strerror(errno));
    while ((entry = readdir(d)) != NULL) {
        const char *name = entry->d_name;
        char **program = str_has_prefix(name, "checker.")      ? &ret->checker
                         : str_has_prefix(name, "interactor.") ? &ret->interactor
                                                               : NULL;
        if (program && *program)
            return err_set(
                err, ERR_INVALID, EEXIST, "%s has both %s and %s", dir, *program, name);
        if (program)
            *program = xstrdup(name);
        else if (str_has_suffix(name, ".in") && strlen(name) > 3)
            strv_add_owned(&ret->inputs, xstrndup(name, strlen(name) - 3));
        else if (str_has_suffix(name, ".h") || str_has_suffix(name, ".hpp"))
            strv_add(&ret->headers, name);
    }
    if (ret->inputs.count)
        qsort(ret->inputs.items, ret->inputs.count, sizeof(char *), by_version);
    return 0;
}

/* Finds the file DIR/NAME+ending. False when there is none. */
static bool find_text(
    const char *dir, const char *name, const char *ending, struct judge_text *ret)
{
    char *path = xasprintf("%s/%s%s", dir, name, ending);
    struct stat st;
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode)) {
        free(path);
        return false;
    }
    *ret = (struct judge_text){.path = path, .size = (size_t)st.st_size};
    return true;
}

static int add_tests(
    struct judge_spec *spec, const char *dir, const struct listing *listing, struct err *err)
{
    if (listing->inputs.count == 0)
        return err_set(err, ERR_NOT_FOUND, ENOENT,
            "%s has no test: a test is NAME.in with NAME.out or NAME.ans", dir);
    if (listing->inputs.count > JUDGE_MAX_TESTS)
        return err_set(
            err, ERR_TOO_LARGE, E2BIG, "%s has more than %d tests", dir, JUDGE_MAX_TESTS);
    for (size_t i = 0; i < listing->inputs.count; i++) {
        const char *name = listing->inputs.items[i];
        struct judge_test *test = judge_spec_add_test(spec);
        test->name = xstrdup(name);
        if (!find_text(dir, name, ".in", &test->input))
            return err_set(
                err, ERR_INVALID, EINVAL, "%s/%s.in is not a regular file", dir, name);
        test->has_expected = find_text(dir, name, ".out", &test->expected) ||
                             find_text(dir, name, ".ans", &test->expected);
        if (!test->has_expected && !spec->has_checker && !spec->has_interactor)
            return err_set(err, ERR_NOT_FOUND, ENOENT,
                "%s/%s.in has neither %s.out nor %s.ans beside it", dir, name, name, name);
    }
    return judge_spec_settle(spec, err);
}

/* Takes the object `key` out of body, or makes a new one. */
static json_t *take_object(json_t *body, const char *key)
{
    json_t *object = json_object_get(body, key);
    if (!json_is_object(object))
        return json_object();
    json_incref(object);
    (void)json_object_del(body, key);
    return object;
}

static int add_others(struct problem *p, json_t *body, const char *dir,
    const struct listing *listing, struct err *err)
{
    int r = 0;
    if (listing->checker) {
        cleanup_free char *path = xasprintf("%s/%s", dir, listing->checker);
        if (json_object_get(body, "compare"))
            return err_field(err, "compare", "there is also %s; keep one of them", path);
        json_t *checker = take_object(body, "checker");
        r = add_program(p, checker, path, NULL, &listing->headers, dir, err);
        (void)json_object_set_new(body, "compare", json_pack("{s:o}", "checker", checker));
    }
    if (r == 0 && listing->interactor) {
        cleanup_free char *path = xasprintf("%s/%s", dir, listing->interactor);
        json_t *interactor = take_object(body, "interactor");
        r = add_program(p, interactor, path, NULL, &listing->headers, dir, err);
        (void)json_object_set_new(body, "interactor", interactor);
    }
    return r;
}

int problem_load(struct problem *problem, const char *dir, const char *solution,
    const char *language, struct err *err)
{
    CLEANUP(listing_done) struct listing listing = {0};
    json_t *body = NULL;
    int r = list(dir, &listing, err);
    if (r == 0)
        r = read_settings(dir, &body, err);
    if (r < 0)
        return r;
    r = add_program(problem, body, solution, language, NULL, dir, err);
    if (r == 0)
        r = add_others(problem, body, dir, &listing, err);
    if (r == 0)
        r = json_judge_decode(body, &problem->runtimes, NULL, false, &problem->judge, err);
    json_decref(body);
    return r < 0 ? r : add_tests(&problem->judge.spec, dir, &listing, err);
}
