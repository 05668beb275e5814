/* SPDX-License-Identifier: Apache-2.0 */

/* See package_read.h. Pure functions over bytes, except package_open(), so that tests/fuzz can
 * feed them anything. */

#include "box/package_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t pad8(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

static size_t count_strings(const char *s, size_t len)
{
    size_t count = 0;
    for (const char *p = s; (p = memchr(p, 0, len - (size_t)(p - s))); p++)
        count++;
    return count;
}

int package_parse(const void *data, size_t size, struct package *ret)
{
    struct package package = {.data = data, .size = size};
    if (size < sizeof(package.head))
        return -EBADMSG;
    memcpy(&package.head, data, sizeof(package.head));
    const struct package_header *h = &package.head;
    if (h->magic != PACKAGE_MAGIC || h->argc == 0 || h->argc > PACKAGE_MAX_ARGS ||
        h->envc > PACKAGE_MAX_ENV || h->globc > PACKAGE_MAX_GLOBS ||
        h->filec > PACKAGE_MAX_FILES || h->strings_len > size - sizeof(*h))
        return -EBADMSG;
    package.strings = package.data + sizeof(*h);
    size_t want = (size_t)h->argc + h->envc + h->globc;
    if (h->strings_len == 0 || package.strings[h->strings_len - 1] != '\0' ||
        count_strings(package.strings, h->strings_len) != want)
        return -EBADMSG;
    package.files_at = pad8(sizeof(*h) + h->strings_len);
    if (h->filec && package.files_at > size)
        return -EBADMSG;
    *ret = package;
    return 0;
}

int package_open(int fd, struct package *ret)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & wanted) != wanted || fstat(fd, &st) < 0 || st.st_size <= 0)
        return -EBADMSG;
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    return data == MAP_FAILED ? -errno : package_parse(data, (size_t)st.st_size, ret);
}

const char *package_string(const struct package *package, size_t *at)
{
    if (*at >= package->head.strings_len)
        return NULL;
    const char *s = package->strings + *at;
    *at += strlen(s) + 1;
    return s;
}

int package_next_file(const struct package *package, size_t *at, struct package_file *ret,
    const char **ret_name, const void **ret_content)
{
    if (*at >= package->size)
        return 0;
    struct package_file f;
    size_t left = package->size - *at;
    if (left < sizeof(f))
        return -EBADMSG;
    memcpy(&f, package->data + *at, sizeof(f));
    left -= sizeof(f);
    const char *name = package->data + *at + sizeof(f);
    size_t name_room = pad8(f.name_len);
    if (f.name_len < 2 || f.name_len > 4097 || name_room > left ||
        memchr(name, 0, f.name_len) != name + f.name_len - 1)
        return -EBADMSG;
    left -= name_room;
    if (f.size > left)
        return -EBADMSG;
    *ret = f;
    *ret_name = name;
    *ret_content = name + name_room;
    *at += sizeof(f) + name_room + pad8(f.size);
    return 1;
}
