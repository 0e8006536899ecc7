/* Comes before NLE's terminal emulator, which looks up each character in up to fifty constant texts: without calls. */
#include <stdlib.h>
#include <string.h>

#define IS(text, wanted, place) (sizeof(text) > (place) && (wanted) == (text)[sizeof(text) > (place) ? (place) : 0])
#define strchr(text, wanted)                                                                                         \
  (IS(text, wanted, 0) || IS(text, wanted, 1) || IS(text, wanted, 2) || IS(text, wanted, 3) || IS(text, wanted, 4) || \
   IS(text, wanted, 5) || IS(text, wanted, 6) || IS(text, wanted, 7) || IS(text, wanted, 8) || IS(text, wanted, 9) || \
   IS(text, wanted, 10))
#define atoi(digit) (*(digit) ? *(digit) - '0' : 0)
