/* SPDX-License-Identifier: Apache-2.0 */

/* One hash of everything that the result of a compiler depends on. A length precedes every
 * part, so that no two questions give the same bytes. Toolchains differ by the key of the box's
 * root tree (lang/rootfs.c: packages, directories, tools) and by the compiler's own file. That
 * file is examined each time: a server may run longer than a version of a package is
 * installed. */

#include "run/cache/cache.h"

#include "base/str.h"

#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { KEY_FORMAT = 2 }; /* increase when the parts of a key change */

static void add_bytes(struct sha256_ctx *ctx, const void *data, size_t len)
{
    uint64_t len64 = len;

    sha256_update(ctx, sizeof(len64), (const uint8_t *)&len64);
    sha256_update(ctx, len, data);
}

static void add_text(struct sha256_ctx *ctx, const char *text)
{
    add_bytes(ctx, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
}

static void add_number(struct sha256_ctx *ctx, uint64_t number)
{
    sha256_update(ctx, sizeof(number), (const uint8_t *)&number);
}

static void add_strings(struct sha256_ctx *ctx, const struct strv *v)
{
    add_number(ctx, v->count);
    for (size_t i = 0; i < v->count; i++)
        add_text(ctx, v->items[i]);
}

static void add_files(struct sha256_ctx *ctx, const struct run_files *files)
{
    add_number(ctx, files->count);
    for (size_t i = 0; i < files->count; i++) {
        const struct run_file *file = &files->items[i];

        add_text(ctx, file->name);
        add_number(ctx, file->executable);
        add_bytes(ctx, file->content, file->size);
    }
}

/* Adds the layers of an image. The compiler does not get the variables of the image. */
static void add_image(struct sha256_ctx *ctx, const struct run_image *image)
{
    add_number(ctx, image ? image->count : 0);
    for (uint32_t i = 0; image && i < image->count; i++)
        add_bytes(ctx, image->layers[i], sizeof(image->layers[i]));
}

/* Adds path, device, inode, size and last change of a file of the host. */
static void add_host_file(struct sha256_ctx *ctx, const char *path)
{
    struct stat st = {0};

    add_text(ctx, path);
    if (stat(path, &st) < 0)
        st = (struct stat){0};
    add_number(ctx, st.st_dev);
    add_number(ctx, st.st_ino);
    add_number(ctx, (uint64_t)st.st_size);
    add_number(ctx, (uint64_t)st.st_mtim.tv_sec);
    add_number(ctx, (uint64_t)st.st_mtim.tv_nsec);
}

static void add_compiler(
    struct sha256_ctx *ctx, const struct root_entries *root, const char *exec_path)
{
    char host[2 * SPAWN_PATH_MAX];

    root_host_path(root, exec_path, host, sizeof(host));
    add_host_file(ctx, host);
}

/* Matters for -march=native only. CPUID traps in a virtual machine and is slow there, so only
 * the leaves that name the model and its features are read. */
static void add_processor(struct sha256_ctx *ctx)
{
    add_number(ctx, getauxval(AT_HWCAP));
    add_number(ctx, getauxval(AT_HWCAP2));
#if defined(__x86_64__)
    unsigned words[8] = {0};

    (void)__get_cpuid(1, &words[0], &words[1], &words[2], &words[3]);
    words[1] &= 0xffff;      /* the upper half is the number of the current processor */
    words[2] &= ~(1u << 27); /* OSXSAVE: set by the operating system */
    (void)__get_cpuid_count(7, 0, &words[4], &words[5], &words[6], &words[7]);
    add_bytes(ctx, words, sizeof(words));
#else
    add_text(ctx, (const char *)getauxval(AT_PLATFORM));
#endif
}

void cache_key_make(const struct cache_question *q, struct cache_key *ret)
{
    const struct run_stage *stage = q->stage;
    struct sha256_ctx ctx;

    sha256_init(&ctx);
    add_number(&ctx, KEY_FORMAT);
    add_text(&ctx, q->scope);
    add_image(&ctx, q->image);
    add_text(&ctx, q->runtime->name);
    add_bytes(&ctx, q->runtime->digest, sizeof(q->runtime->digest));
    add_strings(&ctx, &stage->argv);
    add_strings(&ctx, &stage->env);
    add_strings(&ctx, &stage->artefacts);
    add_text(&ctx, stage->program);
    add_files(&ctx, q->files);
    add_files(&ctx, &stage->files);
    add_text(&ctx, q->root->key);
    add_compiler(&ctx, q->root, q->runtime->compile_root.execs.items[stage->exec]);
    add_host_file(&ctx, "/var/lib/dpkg/status");
    add_processor(&ctx);
    sha256_digest(&ctx, sizeof(ret->bytes), ret->bytes);
}
