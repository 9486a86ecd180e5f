# Run at install time, with
#
#   SOURCE        the repository
#   UMBRELLA      penstock/penstock.h or penstock/torch.h
#   LEFT_OUT      an umbrella whose headers another component installs; may be empty
#   DESTINATION   the include folder, absolute
#
# A header is public when an umbrella includes it, directly or through others. These are installed
# and nothing else is, so that there is no list to keep true.
cmake_policy(VERSION 3.25)

function(reachable_headers output umbrella)
  set(found)
  set(next ${umbrella})
  while(next)
    list(POP_FRONT next header)
    if(header IN_LIST found)
      continue()
    endif()
    list(APPEND found ${header})
    file(STRINGS ${SOURCE}/${header} lines REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<]penstock/")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE ".*[\"<](penstock/[^\">]+)[\">].*" "\\1" included "${line}")
      list(APPEND next ${included})
    endforeach()
  endwhile()
  set(${output} ${found} PARENT_SCOPE)
endfunction()

reachable_headers(headers ${UMBRELLA})
if(LEFT_OUT)
  reachable_headers(others ${LEFT_OUT})
  list(REMOVE_ITEM headers ${others})
endif()
foreach(header IN LISTS headers)
  get_filename_component(folder ${header} DIRECTORY)
  file(INSTALL DESTINATION "${DESTINATION}/${folder}" TYPE FILE FILES "${SOURCE}/${header}")
endforeach()
