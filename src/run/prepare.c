/* SPDX-License-Identifier: Apache-2.0 */

/* See prepare.h. A rule examines the files of the request. It may choose the entry, the sources
 * and the main class, and add files to a stage. It runs on the trusted side, so it only reads
 * text and never starts a program. */

#include "run/prepare.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "run/java_source.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *copy_bytes(const char *data, size_t len)
{
    char *copy = xmalloc(len + 1);

    if (len > 0)
        memcpy(copy, data, len);
    copy[len] = '\0';
    return copy;
}

static void set_entry(struct plan_draft *draft, const char *name)
{
    free(draft->entry);
    draft->entry = xstrdup(name);
}

/* When the request names no entry, takes the first source with a main method. */
static void find_java_entry(struct plan_draft *draft)
{
    for (size_t i = 0; i < draft->sources.count; i++) {
        const struct run_file *file =
            run_files_find(&draft->spec->files, draft->sources.items[i]);
        CLEANUP(java_source_done) struct java_source source = {0};

        java_source_scan(file->content, file->size, &source);
        if (source.main_type != NULL) {
            set_entry(draft, file->name);
            return;
        }
    }
}

/* javac wants a public class in a file of the same name. Code often comes without a file name,
 * so the entry gets a second, fitting name, unless the user has a file of that name. */
static void name_java_entry(
    struct plan_draft *draft, const struct run_file *file, const char *public_type)
{
    const char *slash = strrchr(file->name, '/');
    int dir_len = slash != NULL ? (int)(slash + 1 - file->name) : 0;
    cleanup_free char *name = xasprintf("%.*s%s.java", dir_len, file->name, public_type);

    if (strlen(public_type) > 200 || run_files_find(&draft->spec->files, name) != NULL)
        return;
    run_files_lend(&draft->plan->compile.files, name, file, false);
    for (size_t i = 0; i < draft->sources.count; i++) {
        if (strcmp(draft->sources.items[i], file->name) == 0) {
            free(draft->sources.items[i]);
            draft->sources.items[i] = take_ptr(name);
            return;
        }
    }
    strv_add_owned(&draft->sources, take_ptr(name));
}

static int prepare_java(struct plan_draft *draft, struct err *err)
{
    if (draft->entry == NULL)
        find_java_entry(draft);
    if (draft->entry == NULL)
        return err_field(
            err, "entry", "no file has a main method; name the one to run as entry");

    const struct run_file *file = run_files_find(&draft->spec->files, draft->entry);
    CLEANUP(java_source_done) struct java_source source = {0};
    java_source_scan(file->content, file->size, &source);
    const char *type = source.main_type != NULL     ? source.main_type
                       : source.public_type != NULL ? source.public_type
                       : source.first_type != NULL  ? source.first_type
                                                    : "Main";
    draft->main_class =
        source.package != NULL ? xasprintf("%s.%s", source.package, type) : xstrdup(type);
    if (source.public_type != NULL)
        name_java_entry(draft, file, source.public_type);
    return 0;
}

/* Turns "go1.26.8" in the toolchain's VERSION into "1.26", the language version of the go.mod
 * that Hermes makes. A go.mod without a version would mean Go 1.16. */
static void go_version(const struct runtime *rt, char out[16])
{
    cleanup_free char *path = xasprintf("%s/VERSION", rt->home);
    char text[128];
    char *minor;
    char *end;

    (void)snprintf(out, 16, "1.18");
    if (fs_read_small(AT_FDCWD, path, text, sizeof(text)) <= 0 || !str_has_prefix(text, "go"))
        return;
    unsigned long major = strtoul(text + 2, &minor, 10);
    if (*minor != '.' || !isdigit((unsigned char)minor[1]))
        return;
    (void)snprintf(out, 16, "%lu.%lu", major % 1000, strtoul(minor + 1, &end, 10) % 1000);
}

static int prepare_go(struct plan_draft *draft, struct err *err)
{
    char version[16];

    (void)err;
    if (run_files_find(&draft->spec->files, "go.mod") != NULL)
        return 0;
    go_version(draft->rt, version);
    char *text = xasprintf("module box\n\ngo %s\n", version);
    run_files_add(&draft->plan->compile.files, "go.mod", text, strlen(text), false);
    return 0;
}

/* The value of `name = "..."` in the first table of Cargo.toml called `table`; the caller
 * frees. Understands only the form that cargo itself writes; otherwise returns NULL. */
static char *toml_name(const char *text, const char *table)
{
    bool inside = false;

    while (*text != '\0') {
        size_t len = strcspn(text, "\n");
        const char *p = text + strspn(text, " \t");

        if (*p == '[')
            inside = str_has_prefix(p, table);
        if (inside && str_has_prefix(p, "name")) {
            p += strlen("name");
            p += strspn(p, " \t");
            if (*p == '=') {
                p++;
                p += strspn(p, " \t");
                size_t name_len = *p == '"' ? strspn(p + 1, "abcdefghijklmnopqrstuvwxyz"
                                                            "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                            "0123456789_-")
                                            : 0;
                if (name_len > 0 && p[1 + name_len] == '"')
                    return xstrndup(p + 1, name_len);
            }
        }
        text += len + (text[len] == '\n');
    }
    return NULL;
}

/* Cargo names the program after the package; in the run box it must be called main. */
static int prepare_rust(struct plan_draft *draft, struct err *err)
{
    if (!draft->is_project)
        return 0;
    const struct run_file *file =
        run_files_find(&draft->spec->files, draft->rt->compile.project_file);
    cleanup_free char *text = copy_bytes(file->content, file->size);
    cleanup_free char *name = toml_name(text, "[[bin]]");
    if (name == NULL)
        name = toml_name(text, "[package]");
    if (name == NULL)
        return err_field(err, "files", "Cargo.toml has no name under [package]");
    draft->plan->compile.program = xasprintf("target/release/%s", name);
    strv_add(&draft->plan->compile.artefacts, draft->plan->compile.program);
    return 0;
}

/* The program of the root is fixed, so the entry gets that name in the box and becomes
 * executable. */
static int prepare_native(struct plan_draft *draft, struct err *err)
{
    if (draft->entry == NULL)
        return err_field(err, "entry", "name the file to run");
    draft->plan->run.program = xstrdup(draft->entry);
    return 0;
}

prepare_fn *const prepare_table[PREPARE_COUNT] = {
    [PREPARE_JAVA] = prepare_java,
    [PREPARE_GO] = prepare_go,
    [PREPARE_RUST] = prepare_rust,
    [PREPARE_NATIVE] = prepare_native,
};
