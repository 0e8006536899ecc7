/* Stacks with a guard page at their lower end. They are larger than asked, because inlined functions need more room;
   pages that are never touched take no memory. */
#define _GNU_SOURCE
#include <fcontext/fcontext.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TIMES = 4 };

fcontext_stack_t create_fcontext_stack(size_t size) {
  fcontext_stack_t stack = {NULL, 0};
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size = (TIMES * size + page - 1) / page * page;
  char *lower = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (lower == MAP_FAILED) return stack;
  mprotect(lower, page, PROT_NONE);
  stack.sptr = lower + size;
  stack.ssize = size;
  return stack;
}

void destroy_fcontext_stack(fcontext_stack_t *stack) {
  if (stack->sptr) munmap((char *)stack->sptr - stack->ssize, stack->ssize);
  stack->sptr = NULL;
  stack->ssize = 0;
}
