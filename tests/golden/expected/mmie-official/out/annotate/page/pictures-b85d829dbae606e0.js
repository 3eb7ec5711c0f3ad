plait("pictures-b85d829dbae606e0.js",[["[WEBP 12x8 e1cd7d26547060b1]",12,8],["[WEBP 24x24 c36ecd52af70d593]",24,24],["[WEBP 16x16 3fb5701c6e0bed57]",16,16],["[WEBP 24x24 691923671d9b831e]",24,24]]);
